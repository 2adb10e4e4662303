"""A tool for each place and each effect of the matrix: it writes that it began, stands, and writes that it is done."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tests.faults.cells import PLACES, Place, Stage, tool_of
from tests.faults.fault_tools import LEDGER
from tests.faults.judge import done_mark
from tests.faults.standing import stand
from toolfleet import Context, tool
from toolfleet.calls import Effect


def write(mark: str, ctx: Context) -> None:
    """One line of the ledger, on disk before this returns."""
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{mark} {ctx.call_id} {ctx.attempt} {os.getpid()}\n".encode())
        os.fsync(ledger)
    finally:
        os.close(ledger)


async def work(nonce: str, seconds: float, ctx: Context) -> str:
    """Begin, work, be done."""
    write(nonce, ctx)
    await asyncio.to_thread(stand, Stage.BEGUN, ctx.call_id)
    await asyncio.sleep(seconds)
    write(done_mark(nonce), ctx)
    return nonce


def toil(nonce: str, seconds: float, ctx: Context) -> str:
    """Begin, work, be done."""
    write(nonce, ctx)
    stand(Stage.BEGUN, ctx.call_id)
    write(done_mark(nonce), ctx)
    return nonce


def made(place: Place, effect: Effect) -> Any:
    declared = tool(
        name=tool_of(place, effect),
        queue=place.name,
        long_running=place.long_running,
        read_only=effect is Effect.READ_ONLY,
        idempotent=effect is Effect.IDEMPOTENT,
    )
    return declared(work if place.is_coroutine else toil)


# A worker finds its tools among the names of the module.
globals().update({tool_of(place, effect): made(place, effect) for place in PLACES.values() for effect in Effect})
