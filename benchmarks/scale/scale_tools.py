"""The tools of the scale bench: they wait as an HTTP request does, do nothing, or hold a slot until let go."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from toolfleet import tool

LET_GO = "BENCH_LET_GO"
"""Names a file: once it is there, whoever holds a slot gives it up."""

LOOK_EVERY_S = 0.02
LONG_S = 4 * 3600.0

_letting_go: asyncio.Task[None] | None = None


@tool(timeout_s=LONG_S)
async def nothing(x: int) -> int:
    """Return the argument."""
    return x


@tool(timeout_s=LONG_S)
async def wait_10ms(x: int) -> int:
    """Return the argument ten milliseconds later."""
    await asyncio.sleep(0.01)
    return x


@tool(timeout_s=LONG_S)
async def wait_100ms(x: int) -> int:
    """Return the argument a tenth of a second later."""
    await asyncio.sleep(0.1)
    return x


@tool(timeout_s=LONG_S)
async def hold(x: int) -> int:
    """Keep a slot of the worker until all are let go. However many hold, one of them looks."""
    global _letting_go  # noqa: PLW0603  # shared by the calls of a process
    if _letting_go is None or _letting_go.done():
        _letting_go = asyncio.create_task(_until_let_go(Path(os.environ[LET_GO])))
    await asyncio.shield(_letting_go)
    return x


async def _until_let_go(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
        await asyncio.sleep(LOOK_EVERY_S)
