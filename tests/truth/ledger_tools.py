"""Tools that keep a ledger of their own: one line for each effect, whatever anybody says of their calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from toolfleet import Context, Returned, ToolCall, tool


@tool
async def charge(ledger: str, key: str, seconds: float = 0.0) -> str:
    """Charge a card, then take a while to say so."""
    return await _charged(ledger, key, seconds)


@tool(idempotent=True)
async def charge_again(ledger: str, key: str, seconds: float = 0.0) -> str:
    """Charge a card, in a way that could be repeated."""
    return await _charged(ledger, key, seconds)


@tool
async def charge_and_fail(ledger: str, key: str) -> str:
    """Charge a card, then fail."""
    await _charged(ledger, key, 0.0)
    raise ValueError("the receipt could not be printed")


@tool(return_direct=True)
async def charge_directly(ledger: str, key: str, seconds: float = 0.0) -> str:
    """Charge a card; what it says is the answer."""
    return await _charged(ledger, key, seconds)


@tool
async def charge_revocably(ledger: str, key: str, seconds: float = 0.0) -> str:
    """Charge a card, in a way that can be taken back."""
    return await _charged(ledger, key, seconds)


@charge_revocably.compensate
async def refund(call: ToolCall, result: Returned, ctx: Context) -> str:
    del result, ctx
    asked = json.loads(call.arguments)
    with Path(asked["ledger"]).open("a") as file:
        file.write(f"undone:{asked['key']}\n")
    return "refunded"


@tool(long_running=True)
async def charge_slowly(ledger: str, key: str, seconds: float = 0.0) -> str:
    """Charge a card as a task."""
    return await _charged(ledger, key, seconds)


async def _charged(ledger: str, key: str, seconds: float) -> str:
    with Path(ledger).open("a") as file:
        file.write(f"{key}\n")
    await asyncio.sleep(seconds)
    return f"charged {key}"
