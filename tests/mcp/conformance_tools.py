"""The tools that the protocol's conformance suite calls; see docs/mcp.md."""

import asyncio

from toolfleet import ToolError, current_context, tool


@tool(read_only=True)
async def test_simple_text() -> str:
    """Simple."""
    return "This is a simple text response for testing."


@tool(read_only=True)
async def test_error_handling() -> str:
    """Error."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_tool_with_progress() -> str:
    """Progress."""
    for part in (0.0, 0.5, 1.0):
        current_context().progress(part, "on the way")
        await asyncio.sleep(0.6)
    return "done"


@tool(read_only=True)
async def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(read_only=True, long_running=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"{label} computed"


@tool(read_only=True, long_running=True)
async def failing_job() -> str:
    """Fail."""
    await asyncio.sleep(1)
    raise ToolError("failed")


@tool(read_only=True, long_running=True)
async def protocol_error_job() -> str:
    """Fail."""
    raise RuntimeError("crash")


@tool(read_only=True, long_running=True)
async def confirm_delete(filename: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(1)
    return "deleted"
