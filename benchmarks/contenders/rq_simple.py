"""RQ with SimpleWorkers, which do not fork for every job as its stock worker does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from redis import Redis
from rq import Queue
from rq.job import Job

from benchmarks.contender import ARGUMENT, RESULT_TIMEOUT_S, SLEEP_S, Command, Task, Workload


def noop(argument: Any) -> Any:
    """Return the argument."""
    return argument


def sleep(argument: Any) -> Any:
    """Wait, then return the argument."""
    time.sleep(SLEEP_S)
    return argument


TASKS = {Task.NOOP: noop, Task.SLEEP: sleep}
WORKERS = {Workload.SHORT: "2", Workload.SLEEPS: "8"}
SERIALIZER = "rq.serializers.JSONSerializer"


@dataclass(frozen=True)
class Jobs:
    """Results by `latest_result()`, which blocks on the job's result stream."""

    pending: Sequence[Job]

    async def queued(self) -> None:
        """They are: sending is synchronous."""

    async def first(self) -> None:
        """See `Batch`."""
        value(self.pending[0])

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return [value(job) for job in self.pending]


def value(job: Job) -> Any:
    """Wait for a job's value."""
    result = job.latest_result(timeout=RESULT_TIMEOUT_S)
    return result.return_value if result else None


class Rq:
    """`enqueue_many()` and `latest_result()`."""

    settings: ClassVar[str] = "pool of 2 SimpleWorkers (sleeps: 8, for a worker runs one job at a time), JSON"

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self._redis = Redis.from_url(redis_url, socket_timeout=None)
        self._queue = Queue(connection=self._redis, serializer=SERIALIZER)

    def worker(self, workload: Workload) -> Command:
        """A pool of processes: RQ has no other concurrency."""
        options = ("-q", "-n", WORKERS[workload], "-w", "rq.worker.SimpleWorker", "-S", "json", "-u", self._url)
        return Command((sys.executable, "-m", "rq.cli", "worker-pool", *options))

    async def connect(self) -> None:
        """Nothing to do: the client connects on first use."""

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Jobs:
        """All jobs in one pipeline."""
        del tells_first
        pending = self._queue.enqueue_many([Queue.prepare_data(TASKS[task], args=(ARGUMENT,)) for _ in range(n)])
        await asyncio.sleep(0)
        return Jobs(pending)

    async def close(self) -> None:
        """Close the connections."""
        self._redis.close()
