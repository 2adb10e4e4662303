"""A tool of a worker that comes later than an agent of its name."""

from toolfleet import tool


@tool(read_only=True)
async def late_comer() -> str:
    """Come late."""
    return "here"
