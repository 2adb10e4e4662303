"""Tools that pay others for what they do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from toolfleet import Context, Returned, Submitted, ToolError, tool


@tool
async def search(usd: float, ctx: Context) -> str:
    """Search, in two steps that cost the same."""
    ctx.spend(usd / 2)
    ctx.spend(usd / 2, "usd")
    return "found"


@tool
async def search_and_fail(usd: float, ctx: Context) -> str:
    """Search, and find nothing."""
    ctx.spend(usd)
    raise ToolError("nothing found")


@tool(queue="cpu")
def search_in_process(usd: float, ctx: Context) -> str:
    """Search in a process."""
    ctx.spend(usd)
    return "found"


@tool(queue="io")
def search_on_thread(usd: float, ctx: Context) -> str:
    """Search on a thread."""
    ctx.spend(usd)
    return "found"


@tool(return_direct=True)
async def search_for_the_user(usd: float, ctx: Context) -> str:
    """Search; what is found is the answer."""
    ctx.spend(usd)
    return "found"


@tool(read_only=True, cache_s=60)
async def search_once(usd: float, ctx: Context) -> str:
    """Search; the answer is kept."""
    ctx.spend(usd)
    return "found"


@tool(idempotent=True)
async def search_and_die_at_first(usd: float, path: str, ctx: Context) -> str:
    """Search, and take the worker along the first time."""
    ctx.spend(usd)
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "found"


@tool
async def search_elsewhere(usd: float, ctx: Context) -> Submitted:
    """Have another system search."""
    ctx.spend(usd)
    return Submitted(external_id="job-1", poll_after_s=0.1)


@search_elsewhere.poll
async def has_it_found(external_id: str, ctx: Context) -> Returned:
    del ctx
    # What it has cost is not for the other system to say.
    return Returned(content=f"found by {external_id}")
