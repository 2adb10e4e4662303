"""An MCP server over stdio whose tool says what came along with its call."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("asking", log_level="WARNING")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def came_along(ctx: Context) -> str:
    """Say which span the call stands below."""
    return str(dict(ctx.request_context.meta or {}).get("traceparent"))


if __name__ == "__main__":
    server.run("stdio")
