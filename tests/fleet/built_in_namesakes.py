"""A tool under a name that orchestrators answer to themselves."""

from toolfleet import tool


@tool(name="task_result", read_only=True)
async def mine() -> str:
    """Give the result of a task of mine."""
    return "mine"
