"""What a system must offer to be measured: a worker's command line, and a client that submits calls.

Everything else (processes, clocks, servers) belongs to the harness and is the same for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

ARGUMENT: dict[str, int] = {"x": 1}
"""What every no-op task receives, and returns."""
SLEEP_S = 0.1
RESULT_TIMEOUT_S = 120
"""A contender that waits longer than this for a result has lost it."""


class Task(StrEnum):
    """What a call asks the worker to do; both return their argument."""

    NOOP = "noop"
    SLEEP = "sleep"


class Workload(StrEnum):
    """What the worker is set up for: each contender takes its best settings for each."""

    SHORT = "short"
    """No-op tasks, on two cores."""
    SLEEPS = "sleeps"
    """A thousand tasks that wait, on one worker."""


@dataclass(frozen=True)
class Command:
    """A worker's command line; `env` is added to the harness's environment."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Batch(Protocol):
    """Calls that were submitted at once."""

    async def queued(self) -> None:
        """Return when all of them are in the queue. Asked while the worker stands still, so it may take its time."""

    async def first(self) -> None:
        """Return when the first call of the queue has its result. Of a batch that was told to `tells_first`."""

    async def results(self) -> list[Any]:
        """Wait for all results; returns the tasks' values."""


class Contender(Protocol):
    """A client of one system. A fresh process and a fresh server serve each trial.

    A client without asyncio may block; but `submit` then yields to the loop once before it returns, so that all
    conversations are on their way before the first one waits.
    """

    settings: ClassVar[str]
    """The settings chosen, in one line for the report."""

    def __init__(self, redis_url: str) -> None:
        """Take the server's address; connect nothing yet."""

    def worker(self, workload: Workload) -> Command:
        """The command that starts the real worker, with all its processes below it."""

    async def connect(self) -> None:
        """Make the client ready; the worker's process has been started, it may not be ready."""

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Batch:
        """Send `n` calls, the quickest way this system has; they may still be on their way to the queue.

        Without `tells_first` nobody asks the batch for its `first`, which need not be listened for then.
        """

    async def close(self) -> None:
        """Close every connection. The harness ends the worker."""


@dataclass(frozen=True)
class Futures:
    """A batch whose results arrive on the loop."""

    futures: Sequence[asyncio.Future[Any]]

    async def queued(self) -> None:
        """They are: whoever makes such a batch has waited for it."""

    async def first(self) -> None:
        """See `Batch`."""
        await self.futures[0]

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return await asyncio.gather(*self.futures)
