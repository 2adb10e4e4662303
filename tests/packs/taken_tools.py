"""A tool under a name that a server comes to have as well."""

from toolfleet import tool


@tool(read_only=True)
async def s_taken() -> str:
    """Say whose it is."""
    return "a function's"
