"""Tools of a laptop that reaches nothing but the API. Each notes its effects in a ledger, one line for each."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from toolfleet import Context, tool

LEDGER = Path(os.environ.get("LEDGER", "ledger"))


def noted(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


@tool(read_only=True)
async def echoed(text: str, number: int, ctx: Context) -> str:
    """Give it back."""
    ctx.progress(0.5, "half")
    return f"{text} {number} {ctx.idempotency_key == ctx.call_id} {'TOOLFLEET_REDIS_URL' in os.environ}"


@tool(read_only=True)
async def large(size_bytes: int) -> str:
    """So much text."""
    return "x" * size_bytes


@tool
async def paid(amount: int, seconds: float, ctx: Context) -> str:
    """Pay, which takes so long, once."""
    noted(f"{ctx.call_id} began")
    await asyncio.sleep(seconds)
    noted(f"{ctx.call_id} paid {amount}")
    return f"paid {amount}"


@tool(idempotent=True)
def counted(seconds: float, ctx: Context) -> str:
    """Count on a thread, and go on where an earlier attempt has come to."""
    done = ctx.last_checkpoint or 0
    noted(f"{ctx.call_id} from {done}")
    ctx.checkpoint(done + 1)
    ends_s = time.monotonic() + (seconds if ctx.attempt == 1 else 0)
    while time.monotonic() < ends_s and not ctx.cancelled:
        time.sleep(0.02)
    noted(f"{ctx.call_id} {'cancelled' if ctx.cancelled else 'counted'}")
    return f"counted in attempt {ctx.attempt} from {done}"
