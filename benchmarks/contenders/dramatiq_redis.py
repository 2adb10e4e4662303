"""dramatiq on its Redis broker, with its Redis result backend."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from redis import Redis

from benchmarks.contender import ARGUMENT, RESULT_TIMEOUT_S, SLEEP_S, Command, Task, Workload

# Each thread holds a connection, and redis-py allows 100 unless told otherwise.
URL = os.environ["BENCH_REDIS_URL"] + "?max_connections=5000"
broker = RedisBroker(url=URL)  # type: ignore[no-untyped-call]  # no annotations there
# A result is waited for with a blocking command: the client's default limit of 5 s would end it too early.
broker.add_middleware(Results(backend=RedisBackend(client=Redis.from_url(URL, socket_timeout=None))))  # type: ignore[no-untyped-call]  # no annotations there
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def noop(argument: Any) -> Any:
    """Return the argument."""
    return argument


@dramatiq.actor(store_results=True)
def sleep(argument: Any) -> Any:
    """Wait, then return the argument."""
    time.sleep(SLEEP_S)
    return argument


TASKS = {Task.NOOP: noop, Task.SLEEP: sleep}
THREADS = {Workload.SHORT: "4", Workload.SLEEPS: "200"}


@dataclass(frozen=True)
class Messages:
    """Results by `get_result(block=True)`, in the queue's order."""

    pending: Sequence[dramatiq.Message[Any]]

    async def queued(self) -> None:
        """They are: sending is synchronous."""

    async def first(self) -> None:
        """See `Batch`."""
        self.pending[0].get_result(block=True, timeout=RESULT_TIMEOUT_S * 1_000)

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return [message.get_result(block=True, timeout=RESULT_TIMEOUT_S * 1_000) for message in self.pending]


class Dramatiq:
    """`send()` and `get_result(block=True)`."""

    settings: ClassVar[str] = "1 process, 4 threads (sleeps: 200 threads), Results middleware on Redis"

    def __init__(self, redis_url: str) -> None:
        del redis_url  # dramatiq took it at import, from the environment

    def worker(self, workload: Workload) -> Command:
        """Few threads for work, many for waiting."""
        options = ("--processes", "1", "--threads", THREADS[workload])
        return Command((sys.executable, "-m", "dramatiq", __name__, *options))

    async def connect(self) -> None:
        """Nothing to do: dramatiq connects on first use."""

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Messages:
        """One message after the other, as `send()` sends them."""
        del tells_first
        pending = [TASKS[task].send(ARGUMENT) for _ in range(n)]
        await asyncio.sleep(0)
        return Messages(pending)

    async def close(self) -> None:
        """Close the broker's connections."""
        broker.close()
