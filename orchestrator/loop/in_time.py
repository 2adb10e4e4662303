"""What has to be done before a run's deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.run.limits import TIMED_OUT
from toolfleet.orchestrator.run.value import Run


class RunTimedOut(ToolfleetError):
    """The run's own deadline has passed."""


@asynccontextmanager
async def in_time(run: Run) -> AsyncGenerator[None, None]:
    """Raises RunTimedOut where the block goes on until the run's deadline; a TimeoutError of its own passes."""
    clock = asyncio.timeout(None if run.deadline_unix_s is None else run.deadline_unix_s - time.time())
    try:
        async with clock:
            yield
    except TimeoutError:
        if clock.expired():
            raise RunTimedOut(TIMED_OUT) from None
        raise
