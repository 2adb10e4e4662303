"""A real MCP server for tests: `python mcp_server.py stdio` or `python mcp_server.py PORT`."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents, ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("test server", log_level="WARNING")
READ_ONLY = ToolAnnotations(read_only_hint=True)

LONG = "a_tool_whose_name_says_far_too_much_about_what_it_does_for_a_name"


class Person(BaseModel):
    name: str
    age: int


@server.tool(annotations=READ_ONLY)
def add(a: Annotated[int, Field(description="the first")], b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(annotations=READ_ONLY)
def person(name: str) -> Person:
    """Find a person."""
    return Person(name=name, age=42)


@server.tool(annotations=READ_ONLY)
def media() -> CallToolResult:
    """Show what is no text."""
    return CallToolResult(
        content=[
            TextContent(text="Look:"),
            Image(data=b"\x89PNG12345", format="png").to_image_content(),
            EmbeddedResource(resource=TextResourceContents(uri="memo://1", text="a memo")),
        ]
    )


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def pid() -> str:
    """Tell which process this is."""
    return str(os.getpid())


@server.tool(annotations=READ_ONLY)
def environment(name: str) -> str:
    """Read a variable."""
    return os.environ.get(name, "unset")


@server.tool(annotations=READ_ONLY)
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@server.tool(annotations=READ_ONLY)
async def hang(path: str) -> str:
    """Never answer."""
    Path(path).write_text("begun")
    await asyncio.sleep(600)
    return "late"


@server.tool(annotations=READ_ONLY)
async def report(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    return "reported"


@server.tool(annotations=READ_ONLY)
def die_first(path: str) -> str:
    """End this process, the first time."""
    return _die_first(path)


@server.tool()
def die_once(path: str) -> str:
    """End this process, the first time; must not be repeated."""
    return _die_first(path)


@server.tool(name=LONG, annotations=READ_ONLY)
def long_name() -> str:
    return "long"


def _die_first(path: str) -> str:
    if not Path(path).exists():
        Path(path).write_text(str(time.time()))
        os._exit(1)
    return "survived"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[1]))
