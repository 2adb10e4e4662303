"""The same tool in each way in which a tool can be run: for `benchmarks.kinds`."""

from __future__ import annotations

from toolfleet import tool


@tool
async def on_the_loop(x: int) -> dict[str, int]:
    """Return the argument, as a coroutine."""
    return {"x": x}


@tool(blocking="thread")
def on_a_thread(x: int) -> dict[str, int]:
    """Return the argument, on a thread."""
    return {"x": x}


@tool(blocking="process")
def in_a_process(x: int) -> dict[str, int]:
    """Return the argument, in a process of its own."""
    return {"x": x}
