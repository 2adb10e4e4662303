// The official npm client: Responses.

import OpenAI from "openai";
import { LOOKUP, MOST_TURNS, PRICES, TOTAL, speak } from "./spoken_to.mjs";

const MODEL = process.env.MODEL;
const TOOLS = [{ type: "function", ...LOOKUP, strict: true }];
const client = new OpenAI();
const opened = [];

const ended = (response) => (response.status === "completed" ? "stop" : response.status);
const callsOf = (response) => response.output.filter((item) => item.type === "function_call");

function answered(call, lookedUp) {
  const asked = JSON.parse(call.arguments);
  lookedUp.push(asked);
  return { type: "function_call_output", call_id: call.call_id, output: PRICES[asked.item] };
}

await speak({
  async complete({ question, model = MODEL, key }) {
    const asked = key ? client.withOptions({ apiKey: key }) : client;
    const response = await asked.responses.create({ model, input: question });
    return { text: response.output_text, ended: ended(response), tokens: response.usage.total_tokens };
  },

  async stream({ question }) {
    const stream = client.responses.stream({ model: MODEL, input: question });
    const pieces = [];
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") pieces.push(event.delta);
    }
    return { text: pieces.join(""), pieces: pieces.length, ended: ended(await stream.finalResponse()) };
  },

  async mixed({ question }) {
    // The server remembers what was said.
    const lookedUp = [];
    let [input, before, response] = [question, undefined, undefined];
    for (let turn = 0; turn < MOST_TURNS; turn++) {
      response = await client.responses.create({ model: MODEL, input, tools: TOOLS, previous_response_id: before });
      if (!callsOf(response).length) break;
      input = callsOf(response).map((call) => answered(call, lookedUp));
      before = response.id;
    }
    return { text: response.output_text, looked_up: lookedUp };
  },

  async mixed_streamed({ question }) {
    // The client remembers what was said.
    const lookedUp = [];
    const input = [{ role: "user", content: question }];
    let response;
    for (let turn = 0; turn < MOST_TURNS; turn++) {
      response = await client.responses.stream({ model: MODEL, input, tools: TOOLS, store: false }).finalResponse();
      if (!callsOf(response).length) break;
      input.push(...response.output, ...callsOf(response).map((call) => answered(call, lookedUp)));
    }
    return { text: response.output_text, looked_up: lookedUp };
  },

  async structured({ question }) {
    const response = await client.responses.parse({
      model: MODEL,
      input: question,
      text: { format: { type: "json_schema", name: "total", schema: TOTAL, strict: true } },
    });
    return { value: response.output_parsed };
  },

  async begin({ question }) {
    const stream = await client.responses.create({ model: MODEL, input: question, stream: true });
    opened.push(stream.controller);
    const events = stream[Symbol.asyncIterator]();
    for (let next = await events.next(); !next.done; next = await events.next()) {
      if (next.value.type === "response.output_text.delta") return { text: next.value.delta };
    }
    return { text: "" };
  },

  async abort() {
    opened.pop().abort();
    return {};
  },
});
