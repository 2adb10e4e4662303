"""What has to be done before a run's deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.run.limits import TIMED_OUT
from toolfleet.orchestrator.run.value import Run


class RunTimedOut(ToolfleetError):
    """The run's own deadline has passed."""


_NO_DEADLINE: Final = nullcontext()
"""Most runs have none, and it is asked for several times a turn."""


def in_time(run: Run) -> AbstractAsyncContextManager[None]:
    """Raises RunTimedOut where the block goes on until the run's deadline; a TimeoutError of its own passes."""
    return _NO_DEADLINE if run.deadline_unix_s is None else _until(run.deadline_unix_s)


@asynccontextmanager
async def _until(deadline_unix_s: float) -> AsyncGenerator[None, None]:
    clock = asyncio.timeout(deadline_unix_s - time.time())
    try:
        async with clock:
            yield
    except TimeoutError:
        if clock.expired():
            raise RunTimedOut(TIMED_OUT) from None
        raise
