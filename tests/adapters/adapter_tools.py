"""Tools for tests of the adapters."""

from __future__ import annotations

from typing import Any

from fleet_tools import _play

from toolfleet import Context, ToolError, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@tool(read_only=True)
async def fail(text: str) -> None:
    """Raise."""
    raise ToolError(text)


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(name="a name/that models refuse", read_only=True)
async def named_oddly() -> str:
    """Has a name that no provider takes."""
    return "odd"


@tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, Any]:
    """What the caller says of itself."""
    return dict(ctx.context)


@tool(read_only=True)
async def play(stage: str) -> Any:
    """Do as the stage says."""
    return await _play(stage)
