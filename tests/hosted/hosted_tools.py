"""Tools that write down that they have run: a line of a file that nobody but the test reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolfleet import Context, Media, ToolError, tool


@tool
async def note(ledger: str, word: str, ctx: Context) -> str:
    """Write a word down, once."""
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{word}\n")
    return f"noted {word} for {ctx.tenant or 'nobody'}"


@tool
async def note_and_wait(ledger: str, word: str, until: str) -> str:
    """Write a word down, then wait until a file is there."""
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{word}\n")
    while not Path(until).exists():
        await asyncio.sleep(0.02)
    return f"waited with {word}"


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@tool(name="files.dot")
async def dot() -> Media:
    """Return a picture."""
    return Media(b"\x89PNG\r\n\x1a\n", "image/png")


@tool
async def echo(number: int) -> int:
    """Return a number."""
    return number


@tool
async def long_text(size: int) -> str:
    """Return so many characters."""
    return "x" * size
