"""Tools whose calls are counted: on the loop, in processes, failing, and one that notes each time that it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolfleet import tool


@tool
async def greet(whom: str) -> str:
    """Greet somebody."""
    return f"hello {whom}"


@tool(read_only=True)
async def refuse(word: str) -> str:
    """Raise."""
    raise ValueError(word)


@tool(read_only=True, queue="cpu")
def grind(number: int) -> int:
    """Work in a process."""
    return sum(range(number))


@tool(read_only=True)
async def again(path: str, word: str, seconds: float = 0.0) -> str:
    """Note a word; may be repeated."""
    return await noted(path, word, seconds)


@tool
async def once(path: str, word: str, seconds: float = 0.0) -> str:
    """Note a word; may not be repeated."""
    return await noted(path, word, seconds)


async def noted(path: str, word: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    with Path(path).open("a") as ledger:
        ledger.write(f"{word}\n")
    return word
