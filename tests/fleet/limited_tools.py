"""Tools with limits, which do nothing."""

from __future__ import annotations

from toolfleet import FromArgument, FromTenant, tool


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
