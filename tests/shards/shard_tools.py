"""Tools that write down each effect they have: a line of a file that nobody but the test reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolfleet import tool


@tool
async def charge(ledger: str, what: str) -> str:
    """Charge, once."""
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{what}\n")
    return f"charged {what}"


@tool(timeout_s=60)
async def charge_when_told(ledger: str, what: str, gate: str) -> str:
    """Charge, once, when a file is there."""
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return await charge(ledger=ledger, what=what)


@tool(rate="1000/s")
async def rarely() -> str:
    """Answer."""
    return "here"


@tool(patience_s=0)
async def later(gate: str) -> str:
    """Answer when a file is there."""
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return "at last"


@tool
async def large(kib: int) -> str:
    """Answer with much."""
    return "x" * 1024 * kib
