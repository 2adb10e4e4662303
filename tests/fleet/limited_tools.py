"""Tools with limits, and what wants to be asked later."""

from __future__ import annotations

import time
from pathlib import Path

from toolfleet import Context, FromArgument, FromTenant, RetryAfter, tool


@tool(rate="10/s", burst=5, rate_key=FromTenant(), concurrency=3)
async def search(query: str = "") -> str:
    """Search."""
    return f"found {query}"


@tool(concurrency=2, concurrency_key=FromArgument("city"))
async def forecast(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


@tool(rate="600/min")
async def ping() -> str:
    """Answer."""
    return "pong"


@tool
async def unbounded() -> str:
    """Answer, as often as anybody likes."""
    return "here"


def _enter(ledger: str, word: str) -> int:
    path = Path(ledger)
    with path.open("a", encoding="utf-8") as book:
        book.write(f"{word} {time.time()}\n")
    return len(path.read_text(encoding="utf-8").splitlines())


@tool(rate="1000/s", burst=100, rate_key=FromTenant())
async def upstream(ledger: str, seconds: float, ctx: Context, tell_model: bool = False) -> str:
    """Ask what wants to be asked later, the first time."""
    if _enter(ledger, ctx.tenant or "nobody") == 1:
        raise RetryAfter(seconds, tell_model=tell_model)
    return f"attempt {ctx.attempt}"


@tool
async def once_upstream(ledger: str, seconds: float, ctx: Context) -> str:
    """Have an effect, which the first try has not had; without limits."""
    if _enter(ledger, "ran") == 1:
        raise RetryAfter(seconds)
    return f"attempt {ctx.attempt}"
