"""The event loop of our own processes: uvloop's, which comes along wherever it has a wheel, otherwise asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop that is nobody's yet."""
    try:
        import uvloop  # noqa: PLC0415  # there are platforms without it
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]  # Any where it is not installed


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """Do as `asyncio.run`, on such a loop. Not for what ends at once: loading it takes longer than it saves."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


async def stand_back(turns: int) -> None:
    """Return after so many turns of the loop, in which what is due now has begun and sent what it has to send."""
    for _ in range(turns):
        await asyncio.sleep(0)
