"""The fleet as an MCP server, over stdio and Streamable HTTP. Needs the extra `toolfleet[mcp]`."""

from orchestrator.mcp.app import McpApp, mcp_app, serve_stdio
from orchestrator.mcp.callers import ANYBODY, Caller

__all__ = ["ANYBODY", "Caller", "McpApp", "mcp_app", "serve_stdio"]
