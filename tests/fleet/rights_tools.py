"""Tools that make their worker use each kind of key that it has rights for."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from toolfleet import Context, Returned, Submitted, tool
from toolfleet.interceptors import Cache
from toolfleet.interceptors.redis_store import RedisStore


@tool(idempotent=True)
async def dies_after_a_checkpoint(ctx: Context) -> Any:
    """Remember something, and lose the worker; the next attempt says what it finds."""
    if ctx.last_checkpoint is None:
        ctx.checkpoint({"at": 7})
        ctx.progress(0.5)
        await asyncio.sleep(1.0)  # it is sent a few times a second
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.last_checkpoint


@tool(read_only=True, interceptors=[Cache(60.0, store=RedisStore())])
async def cached(value: int) -> int:
    """Return a value, kept for the fleet."""
    return value


@tool
async def elsewhere() -> Submitted:
    """Start a job."""
    return Submitted(external_id="job-1", poll_after_s=0.2)


@elsewhere.poll
async def ask(external_id: str, ctx: Context) -> Returned:
    return Returned(content=f"{external_id} is done")
