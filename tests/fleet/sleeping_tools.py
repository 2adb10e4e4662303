"""Tools that sleep, and write down each time that they begin to work."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from toolfleet import Context, tool


def _note(ledger: str, what: object) -> None:
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{what}\n")


@tool(idempotent=True, concurrency=1)
async def rounds(ledger: str, count: int, seconds: float, ctx: Context) -> list[int]:
    """Go round, and sleep after each round."""
    done = ctx.last_checkpoint or 0
    while done < count:
        _note(ledger, done)
        done += 1
        ctx.checkpoint(done)
        await ctx.sleep(timedelta(seconds=seconds))
    return [done, ctx.attempt]


@tool
async def rest_twice(seconds: float, ctx: Context) -> int:
    """Sleep twice behind one checkpoint."""
    ctx.checkpoint("begun")
    await ctx.sleep(seconds)
    await ctx.sleep(seconds)
    return ctx.attempt


@tool(timeout_s=0.4)
async def stay_asleep(seconds: float, ctx: Context) -> str:
    """Sleep without a checkpoint, and with a time limit that stands still meanwhile."""
    await ctx.sleep(seconds)
    return "awake"


@tool
def sleep_on_thread(seconds: float, ctx: Context) -> str:
    """Sleep on a thread."""
    ctx.checkpoint("begun")
    ctx.sleep_blocking(seconds)
    return "awake"


@tool(queue="cpu")
def sleep_in_process(seconds: float, ctx: Context) -> str:
    """Sleep in a process."""
    ctx.checkpoint("begun")
    ctx.sleep_blocking(seconds)
    return "awake"


@tool
async def sleep_for(seconds: Any, ctx: Context) -> str:
    """Sleep for whatever is said."""
    ctx.checkpoint("begun")
    await ctx.sleep(float(seconds) if isinstance(seconds, str) else seconds)
    return "awake"
