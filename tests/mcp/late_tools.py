"""A tool that is not there from the start."""

from toolfleet import tool


@tool(read_only=True)
async def late() -> str:
    """Come late."""
    return "late"
