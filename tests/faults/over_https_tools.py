"""Tools of a worker over HTTPS, whose effects stand in the ledger of the others."""

from __future__ import annotations

from tests.faults.fault_tools import _work
from toolfleet import Context, tool


@tool
async def once_over_https(nonce: str, seconds: float, ctx: Context) -> str:
    """Has an effect that must not happen twice."""
    return await _work(nonce, seconds, ctx)


@tool(idempotent=True)
async def again_over_https(nonce: str, seconds: float, ctx: Context) -> str:
    """Has an effect that may happen twice."""
    return await _work(nonce, seconds, ctx)
