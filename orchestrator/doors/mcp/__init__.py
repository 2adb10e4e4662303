"""The fleet as an MCP server, over stdio and Streamable HTTP. Needs the extra `toolfleet[mcp]`."""

from toolfleet.orchestrator.doors.mcp.asgi import McpApp, mcp_app, serve_stdio
from toolfleet.orchestrator.doors.mcp.callers import ANYBODY, Caller

__all__ = ["ANYBODY", "Caller", "McpApp", "mcp_app", "serve_stdio"]
