"""Tools of MCP servers without a fleet: made of a configuration, and called as a worker calls them."""

import json

from toolfleet import Context
from toolfleet.workers.packs.mcp import ServersTools
from toolfleet.workers.packs.mcp_servers.configuration import McpSettings


def configured(tmp_path, **servers):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def followed(tmp_path, *, servers, **settings):
    return ServersTools(McpSettings(config=configured(tmp_path, **servers), **settings))


def imported(tmp_path, *, servers, **settings):
    return followed(tmp_path, servers=servers, **settings).tools


async def call(tool, *, report=None, **arguments):
    context = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0, report=report or (lambda _: None))
    return await tool.invoke(tool.bind(json.dumps(arguments)), context)
