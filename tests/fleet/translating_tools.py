"""A tool called translate."""

from toolfleet import tool


@tool(read_only=True, queue="translations")
async def translate(text: str) -> str:
    """Translate a text."""
    return text[::-1]
