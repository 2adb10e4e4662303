"""Tools that write down each effect they have: a line of a file that nobody but the test reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolfleet import ToolError, tool


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{line}\n")


@tool
async def charge(ledger: str, what: str = "charge", fails: bool = False) -> str:
    """Charge, once."""
    _write(ledger, what)
    if fails:
        raise ToolError("the bank said no")
    return f"charged {what}, card 4711"


@tool(long_running=True)
async def charge_slowly(ledger: str, what: str = "charge", fails: bool = False, seconds: float = 0.3) -> str:
    """Charge, once, after a while."""
    await asyncio.sleep(seconds)
    return await charge(ledger=ledger, what=what, fails=fails)


@tool(requires_approval=True)
async def charge_if_allowed(ledger: str, what: str = "charge") -> str:
    """Charge, once a person has agreed."""
    _write(ledger, what)
    return f"charged {what}"
