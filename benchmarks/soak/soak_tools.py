"""The two tools of the soak: each notes that it ran, and returns its argument."""

from __future__ import annotations

import asyncio
import os

from benchmarks.soak.ledger import EFFECT, note
from toolfleet import tool

TAKES = "SOAK_TAKES_S"
TAKES_S = float(os.environ.get(TAKES, "0.01"))


@tool
async def happen_once(nonce: str) -> str:
    """Have an effect that may not be repeated."""
    note(EFFECT, nonce)
    await asyncio.sleep(TAKES_S)
    return nonce


@tool(idempotent=True)
async def happen(nonce: str) -> str:
    """Have an effect that may be repeated."""
    note(EFFECT, nonce)
    await asyncio.sleep(TAKES_S)
    return nonce
