"""Stock Celery on its Redis transport and Redis result backend, with every extra switched off."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from celery import Celery, group
from celery.result import AsyncResult, GroupResult

from benchmarks.contender import ARGUMENT, RESULT_TIMEOUT_S, SLEEP_S, Command, Task, Workload

URL = os.environ["BENCH_REDIS_URL"]
app = Celery("benchmarks.contenders.stock_celery", broker=URL, backend=URL)
app.conf.update(
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    result_expires=3_600,
)


@app.task  # type: ignore[untyped-decorator]  # Celery ships no annotations
def noop(argument: Any) -> Any:
    """Return the argument."""
    return argument


@app.task  # type: ignore[untyped-decorator]  # Celery ships no annotations
def sleep(argument: Any) -> Any:
    """Wait, then return the argument."""
    time.sleep(SLEEP_S)
    return argument


TASKS = {Task.NOOP: noop, Task.SLEEP: sleep}
JOIN_INTERVAL_S = 0.001
"""A join sleeps so long before it listens; the default of 0.5 s would be most of what is measured."""
# More than 200 threads do worse: they contend for the interpreter, not for the sleep.
POOLS = {Workload.SHORT: ("prefork", "2"), Workload.SLEEPS: ("threads", "200")}


@dataclass(frozen=True)
class Results:
    """Results by `get()`, one after the other: Celery's own loop collects the others meanwhile."""

    pending: Sequence[AsyncResult]

    async def queued(self) -> None:
        """They are: sending is synchronous."""

    async def first(self) -> None:
        """See `Batch`."""
        self.pending[0].get(timeout=RESULT_TIMEOUT_S)

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return [result.get(timeout=RESULT_TIMEOUT_S) for result in self.pending]


@dataclass(frozen=True)
class JoinedGroup:
    """Results by one join of the group."""

    pending: GroupResult

    async def queued(self) -> None:
        """They are: sending is synchronous."""

    async def first(self) -> None:
        """See `Batch`."""
        self.pending.results[0].get(timeout=RESULT_TIMEOUT_S)

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return list(self.pending.get(timeout=RESULT_TIMEOUT_S, interval=JOIN_INTERVAL_S))


class StockCelery:
    """`delay()` and `get()`."""

    settings: ClassVar[str] = (
        "prefork, 2 processes (sleeps: 200 threads), prefetch 128 each, no events, gossip, mingle or heartbeat"
    )

    def __init__(self, redis_url: str) -> None:
        del redis_url  # Celery took it at import, from the environment

    def worker(self, workload: Workload) -> Command:
        """Prefork for work, threads for waiting."""
        pool, concurrency = POOLS[workload]
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")
        return Command(
            (sys.executable, "-m", "celery", "-A", app.main, "worker", "-P", pool, "-c", concurrency, *quiet)
        )

    async def connect(self) -> None:
        """Nothing to do: Celery connects on first use."""

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Results | JoinedGroup:
        """One message after the other, as `delay()` sends them."""
        del tells_first
        pending = [TASKS[task].delay(ARGUMENT) for _ in range(n)]
        await asyncio.sleep(0)
        return Results(pending)

    async def close(self) -> None:
        """Close the broker's and the backend's connections."""
        app.close()


class StockCeleryGroup(StockCelery):
    """`group()`, joined."""

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> JoinedGroup:
        """One group of `n`."""
        del tells_first
        pending = group([TASKS[task].s(ARGUMENT) for _ in range(n)]).apply_async()
        await asyncio.sleep(0)
        return JoinedGroup(pending)
