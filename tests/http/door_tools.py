"""Tools that only tests of the doors need."""

from __future__ import annotations

from typing import Any

from toolfleet import Context, Submitted, tool


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


@tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, Any]:
    """Tell who asks, and who the caller claims to be."""
    return {"tenant": ctx.tenant, "subject": ctx.subject, "claimed": ctx.context.get("tenant")}
