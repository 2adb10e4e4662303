"""A tool that writes down when it begins and ends: a file that nobody but the test reads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from toolfleet import tool


@tool(read_only=True)
async def hold(ledger: str, name: str, seconds: float = 0.2) -> str:
    """Take a while."""
    _write(ledger, f"begins {name} {time.time()}")
    await asyncio.sleep(seconds)
    _write(ledger, f"ends {name} {time.time()}")
    return name


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{line}\n")
