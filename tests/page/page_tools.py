"""Tools that only tests of the page need."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from toolfleet import Context, Submitted, tool


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(patience_s=0.2, long_running=True)
async def index_folder(steps: int = 20, step_seconds: float = 0.5, *, ctx: Context) -> str:
    """Index a folder, and tell how far it is."""
    for step in range(steps):
        ctx.progress((step + 1) / steps, f"file {step + 1} of {steps}")
        await asyncio.sleep(step_seconds)
    return f"{steps} files"


@tool(patience_s=30)
async def elsewhere(job: str) -> Submitted:
    """Start a job that only a callback ends."""
    return Submitted(external_id=job)


@tool(read_only=True, concurrency=50)
async def fetch_page(url: str, seconds: float = 0.05) -> str:
    """Fetch a page."""
    await asyncio.sleep(seconds)
    return f"200 OK, {len(url) * 37} bytes"


@tool(read_only=True)
async def narrate(text: str, seconds: float = 0.0) -> str:
    """Log this, and go on for so long."""
    logging.getLogger("narrator").warning("%s", text)
    await asyncio.sleep(seconds)
    return "told"


@tool(long_running=True)
async def transfer(amount: int, ctx: Context) -> str:
    """Transfer an amount, from an account that a person names."""
    ctx.checkpoint("begun")
    account = await ctx.ask("From which <b>account</b>?", Literal["savings", "checking"])
    note = await ctx.ask("What shall its note say?", str | int)
    return f"{amount} from {account}: {note}"


@tool(read_only=True)
async def give_back(value: Any) -> Any:
    """Give back what came."""
    return value


@tool(read_only=True)
async def break_down(text: str) -> None:
    """Fail, saying this."""
    raise RuntimeError(text)
