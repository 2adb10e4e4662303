"""Tools whose answers are shared: each run of one is a line in a ledger that nobody but the test reads."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated

from toolfleet import Context, FromContext, Returned, ToolError, tool


def _enter(ledger: str, word: str = "ran") -> int:
    path = Path(ledger)
    with path.open("a", encoding="utf-8") as book:
        book.write(f"{word} {os.getpid()}\n")
    return len(path.read_text(encoding="utf-8").splitlines())


@tool(read_only=True, cache_s=60)
async def look_up(ledger: str, gate: str = "", query: dict[str, int] | None = None) -> str:
    """Answer once the gate is there."""
    nth = _enter(ledger)
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.01)
    return f"found by the {nth}. run"


@tool(read_only=True, cache_s=60, queue="cpu")
def look_up_in_process(ledger: str, seconds: float = 0.0) -> str:
    """Answer after a while, in a process."""
    nth = _enter(ledger)
    time.sleep(seconds)
    return f"found by the {nth}. run"


@tool(read_only=True, cache_s=0.2)
async def look_up_briefly(ledger: str) -> str:
    """Answer, for a moment."""
    return f"found by the {_enter(ledger)}. run"


@tool(read_only=True, cache_s=60)
async def fail_at_first(ledger: str, times: int, gate: str = "") -> str:
    """Fail a few times, then answer."""
    nth = _enter(ledger)
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.01)
    if nth <= times:
        raise ToolError(f"the {nth}. run failed")
    return f"found by the {nth}. run"


@tool(read_only=True, cache_s=60)
async def long_answer(ledger: str, characters: int) -> str:
    """Answer with more than is kept."""
    _enter(ledger)
    return "x" * characters


@tool(read_only=True, cache_s=60)
async def sets_state(ledger: str) -> Returned:
    """Answer, and change what the run's tools share."""
    return Returned(content=f"found by the {_enter(ledger)}. run", state={"seen": True})


@tool(read_only=True, cache_s=60)
async def greet(ledger: str, city: Annotated[str, FromContext("city")]) -> str:
    """Look at one thing of the caller's context."""
    return f"{city}, by the {_enter(ledger)}. run"


@tool(read_only=True, cache_s=60)
async def recognise(ledger: str, ctx: Context) -> str:
    """Look at who asks."""
    return f"{ctx.subject}, by the {_enter(ledger)}. run"


@tool(read_only=True, cache_s=60, concurrency=1)
async def narrow(ledger: str, query: int, times: int = 0) -> str:
    """Fail a few times for each query, then answer; one at a time in the whole fleet."""
    nth = _enter(f"{ledger}-{query}")
    _enter(ledger, "in")
    await asyncio.sleep(0.05)
    _enter(ledger, "out")
    if nth <= times:
        raise ToolError(f"the {nth}. run failed")
    return f"found by the {nth}. run"
