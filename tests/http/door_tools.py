"""Tools that only tests of the doors need."""

from __future__ import annotations

from typing import Any

from toolfleet import Submitted, tool


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(patience_s=30)
async def elsewhere(job: str) -> Submitted:
    """Start a job that only a callback ends."""
    return Submitted(external_id=job)


@tool(read_only=True)
async def nested(value: Any) -> Any:
    """Give back what came."""
    return value
