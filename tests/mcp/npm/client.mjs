// The official TypeScript client: lists, calls, fails, is shown an image, and waits for a slow call.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "smoke", version: "1" }, { capabilities: {} });
await client.connect(new StreamableHTTPClientTransport(new URL(process.env.MCP_URL)));
const call = (name, args = {}) => client.callTool({ name, arguments: args });

const tools = (await client.listTools()).tools.map((tool) => tool.name);
const greeting = await call("greet", { name: "Ann" });
const failed = await call("test_error_handling");
const image = (await call("test_image_content")).content.find((each) => each.type === "image");
const progress = [];
const slow = await client.callTool({ name: "test_tool_with_progress", arguments: {} }, undefined, {
  onprogress: (each) => progress.push(each.progress),
});
const long = await call("slow_compute", { seconds: 1, label: "it" });
const resources = (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate);
await client.close();
console.log(
  JSON.stringify({
    tools,
    greeting: greeting.content[0].text,
    failed: [failed.isError, failed.content[0].text],
    image: [image.mimeType, image.data.length > 0],
    progress,
    slow: slow.content[0].text,
    long: long.content[0].text,
    resources,
  }),
);
