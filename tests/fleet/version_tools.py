"""A tool in the version that VERSION_OF_TOOLS tells the worker, each with a schema of its own; 0 is without."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from toolfleet import tool

VERSION = int(os.environ.get("VERSION_OF_TOOLS", "0"))

if VERSION == 1:

    @tool(version=1, read_only=True)
    async def quote(item: str) -> str:
        """What an item costs."""
        return f"one: {item}"

    @tool(version=1)
    async def book(path: str) -> str:
        """Note that it has begun, and go on until somebody ends it."""
        with Path(path).open("a") as ledger:
            ledger.write("one\n")
        await asyncio.sleep(600)
        return "one"

elif VERSION == 2:

    @tool(version=2, idempotent=True)
    async def quote(article: str, currency: str) -> str:
        """What an article costs in a currency."""
        return f"two: {article} in {currency}"

    @tool(version=2)
    async def book(path: str) -> str:
        """Note that it was done."""
        with Path(path).open("a") as ledger:
            ledger.write("two\n")
        return "two"

else:

    @tool(read_only=True)
    async def quote(item: str) -> str:
        """What an item costs."""
        return f"none: {item}"
