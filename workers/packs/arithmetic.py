"""The smallest useful fleet: two tools, enough for the square root of 475695037565 (689706.486532…)."""

from __future__ import annotations

import math

from toolfleet import ToolError, tool


@tool(read_only=True)
async def sum(numbers: list[float]) -> float:  # noqa: A001  # the tool's name is the function's
    """Add numbers.

    Args:
        numbers: what to add
    """
    return math.fsum(numbers)


@tool(read_only=True)
async def square_root(x: float) -> float:
    """Calculate the square root of a number.

    Args:
        x: the number, not negative
    """
    if x < 0:
        raise ToolError(f"{x} has no real square root")
    return math.sqrt(x)
