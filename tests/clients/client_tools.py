"""Tools that write down in a ledger outside what they do, and that they were stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from toolfleet import tool


@tool
async def charge(ledger: str, key: str) -> str:
    """Charge a card."""
    _write(ledger, key)
    return f"charged {key}"


@tool
async def hold(ledger: str, key: str) -> str:
    """Hold a seat until somebody calls it off."""
    _write(ledger, f"held:{key}")
    try:
        await asyncio.Event().wait()
    finally:
        _write(ledger, f"released:{key}")
    return ""


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(f"{line}\n")
