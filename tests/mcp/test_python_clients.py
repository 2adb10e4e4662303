"""MCP clients that other people have written, against the real server: each lists, calls, fails, sees and waits."""

import asyncio

import pytest
from mcp import Client

from tests.imported_when_used import ImportedWhenUsed
from tests.mcp.doors import text

agents_mcp = ImportedWhenUsed("agents.mcp")
fastmcp = ImportedWhenUsed("fastmcp")

WAIT_S = 30


@pytest.fixture(params=["newest", "before sessions were given up"])
def sdk(request, address):
    """The official Python client, of each era."""
    return Client(address, mode="legacy" if "before" in request.param else "auto")


async def test_the_official_python_client(sdk, stage):
    async with sdk:
        assert {"add", "pictured"} <= {tool.name for tool in (await sdk.list_tools()).tools}
        assert text(await sdk.call_tool("add", {"a": 1, "b": 2})) == "3"
        failed = await sdk.call_tool("fail", {"text": "no luck"})
        assert (failed.is_error, "no luck" in text(failed)) == (True, True)
        assert "image" in [each.type for each in (await sdk.call_tool("pictured", {})).content]
        slow = asyncio.create_task(sdk.call_tool("play_long", {"stage": stage.path}))
        (await stage.enters()).returns({"done": 1})
        assert (await slow).structured_content == {"done": 1}


async def test_fastmcps_client(address, stage):
    async with fastmcp.Client(address) as client:
        assert {"add", "pictured"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
        with pytest.raises(fastmcp.exceptions.ToolError, match="no luck"):
            await client.call_tool("fail", {"text": "no luck"})
        assert "image" in [each.type for each in (await client.call_tool("pictured", {})).content]
        slow = asyncio.create_task(client.call_tool("play_long", {"stage": stage.path}))
        (await stage.enters()).returns({"done": 1})
        assert (await slow).structured_content == {"done": 1}
        templates = [each.uri_template for each in await client.list_resource_templates()]
        assert "toolfleet://runs/{run_id}" in templates


async def test_the_agents_sdks_client(address, stage):
    async with agents_mcp.MCPServerStreamableHttp({"url": address}, client_session_timeout_seconds=WAIT_S) as server:
        assert {"add", "pictured"} <= {tool.name for tool in await server.list_tools()}
        assert text(await server.call_tool("add", {"a": 1, "b": 2})) == "3"
        failed = await server.call_tool("fail", {"text": "no luck"})
        assert (failed.is_error, "no luck" in text(failed)) == (True, True)
        assert "image" in [each.type for each in (await server.call_tool("pictured", {})).content]
        slow = asyncio.create_task(server.call_tool("play_long", {"stage": stage.path}))
        (await stage.enters()).returns({"done": 1})
        assert (await slow).structured_content == {"done": 1}
