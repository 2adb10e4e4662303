"""Another tool called translate, which wants to be called differently."""

from toolfleet import tool


@tool(read_only=True, queue="translations")
async def translate(text: str, language: str) -> str:
    """Translate a text into a language."""
    return f"{text} ({language})"
