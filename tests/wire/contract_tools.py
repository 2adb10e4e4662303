"""Tools by which a worker comes to run each of its scripts."""

from __future__ import annotations

import asyncio

from toolfleet import Context, Returned, Submitted, current_context, tool
from toolfleet.errors import RetryAfter


@tool(read_only=True, rate="1000/s", burst=100, concurrency=5)
async def bounded(value: str) -> str:
    """Give back what came."""
    return value


@tool(read_only=True, cache_s=60)
async def asked(value: str) -> str:
    """Give back what came, to all who ask."""
    await asyncio.sleep(0.05)
    return value


@tool(read_only=True, concurrency=2)
async def later(value: str) -> str:
    """Wants to be asked again once."""
    if current_context().attempt == 1 and value not in LATER:
        LATER.add(value)
        raise RetryAfter(0.05)
    return value


LATER: set[str] = set()


@tool
async def large(characters: int) -> str:
    """Return so much."""
    return "x" * characters


@tool
async def start(value: str) -> Submitted:
    """Begin work elsewhere."""
    return Submitted(external_id=value, poll_after_s=0.01 if value == "ends" else 60)


@start.poll
async def ask(external_id: str, ctx: Context) -> Returned:
    """Ask for it."""
    return Returned(content=external_id)
