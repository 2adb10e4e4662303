"""The tools that Toolfleet's worker serves in the benchmark."""

from __future__ import annotations

import asyncio

from benchmarks.contender import SLEEP_S
from toolfleet import tool


@tool
async def noop(x: int) -> dict[str, int]:
    """Return the argument; an effect as far as the fleet knows, so every call is claimed."""
    return {"x": x}


@tool(read_only=True)
async def noop_read_only(x: int) -> dict[str, int]:
    """Return the argument."""
    return {"x": x}


@tool(rate="1000000/s", burst=1_000_000, concurrency=1_000_000)
async def noop_limited(x: int) -> dict[str, int]:
    """Return the argument; with limits that nobody reaches."""
    return {"x": x}


@tool
async def sleep(x: int) -> dict[str, int]:
    """Wait, then return the argument."""
    await asyncio.sleep(SLEEP_S)
    return {"x": x}
