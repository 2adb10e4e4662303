"""A real MCP server whose lists are a file's: `changing_mcp_server.py STATE.json stdio` or `… STATE.json PORT`.

It tells of a change when the file has another content. Its tools answer with what the file says then, and `pid` with
the process. The file: {"tools": {name: {"input": {…}, "answer": "…", "until": file}}, "resources": {uri: text or
{"blob": base64}}, "templates": [uri template]}.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

STATE = Path(sys.argv[1])
PAGE = 3
LOOK_EVERY_S = 0.02
bus = InMemorySubscriptionBus()


def state():
    return {"tools": {}, "resources": {}, "templates": []} | json.loads(STATE.read_text())


async def list_tools(ctx, params):
    made = [
        Tool(
            name=name,
            description=said.get("description", "One."),
            input_schema={"type": "object", "properties": said.get("input", {})},
            annotations=ToolAnnotations(read_only_hint=said.get("read_only", True)),
        )
        for name, said in state()["tools"].items()
    ]
    return ListToolsResult(tools=made)


async def call_tool(ctx, params):
    said = state()["tools"].get(params.name)
    if said is None:
        raise MCPError(-32602, f"there is no {params.name} here")
    if said.get("until"):
        Path(said["begun"]).touch()
        while not Path(said["until"]).exists():
            await asyncio.sleep(LOOK_EVERY_S)
    answer = str(os.getpid()) if params.name == "pid" else said.get("answer", params.name)
    return CallToolResult(content=[TextContent(text=answer)])


async def list_resources(ctx, params):
    begin = int((params and params.cursor) or 0)
    uris = list(state()["resources"])
    page = [Resource(uri=uri, name=uri.rpartition("/")[2], size=7) for uri in uris[begin : begin + PAGE]]
    return ListResourcesResult(resources=page, next_cursor=str(begin + PAGE) if begin + PAGE < len(uris) else None)


async def list_templates(ctx, params):
    return ListResourceTemplatesResult(
        resource_templates=[ResourceTemplate(uri_template=each, name="any") for each in state()["templates"]]
    )


async def read_resource(ctx, params):
    uri = str(params.uri)
    held = state()["resources"].get(uri, f"made of {uri}")
    if held == "broken":
        raise MCPError(-32002, f"{uri} cannot be read now")
    if isinstance(held, dict):
        content = BlobResourceContents(uri=uri, blob=held["blob"], mime_type=held.get("type", "image/png"))
    else:
        content = TextResourceContents(uri=uri, text=held)
    return ReadResourceResult(contents=[content])


server = Server(
    "changing",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscriptions_listen=ListenHandler(bus),
)


async def tell_of_changes():
    told = STATE.read_text()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if (now := STATE.read_text()) != told:
            told = now
            await bus.publish(ToolsListChanged())
            await bus.publish(ResourcesListChanged())


async def serve():
    watching = asyncio.create_task(tell_of_changes())
    if sys.argv[2] == "stdio":
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    else:
        import uvicorn  # over stdio it would only cost time

        config = uvicorn.Config(server.streamable_http_app(), port=int(sys.argv[2]), log_level="warning")
        await uvicorn.Server(config).serve()
    watching.cancel()


if __name__ == "__main__":
    asyncio.run(serve())
