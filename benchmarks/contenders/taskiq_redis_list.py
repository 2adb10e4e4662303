"""taskiq on its Redis list broker and Redis result backend."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, ClassVar

from taskiq import AsyncTaskiqTask
from taskiq.exceptions import ResultGetError
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from benchmarks.contender import ARGUMENT, RESULT_TIMEOUT_S, SLEEP_S, Command, Futures, Task, Workload

URL = os.environ["BENCH_REDIS_URL"]
CONNECTIONS = 50
WAITERS = 4
POLL_ALONE_S = 0.0005
POLL_IN_A_CROWD_S = 0.02
broker = ListQueueBroker(URL, max_connection_pool_size=CONNECTIONS, socket_timeout=None).with_result_backend(
    RedisAsyncResultBackend(
        URL,
        keep_results=False,
        result_ex_time=3_600,
        max_connection_pool_size=CONNECTIONS,
        socket_timeout=None,  # without it redis-py arms a timer for every reply
    )
)


@broker.task
async def noop(argument: dict[str, int]) -> dict[str, int]:
    """Return the argument."""
    return argument


@broker.task
async def sleep(argument: dict[str, int]) -> dict[str, int]:
    """Wait, then return the argument."""
    await asyncio.sleep(SLEEP_S)
    return argument


TASKS = {Task.NOOP: noop, Task.SLEEP: sleep}


class Taskiq:
    """`kiq()`, and polling for results: often for one call, rarely among many."""

    settings: ClassVar[str] = (
        "list broker, 1 worker process on uvloop, max_async_tasks 1000; results polled every 0.5 ms (alone) or 20 ms"
    )

    def __init__(self, redis_url: str) -> None:
        del redis_url  # taskiq took it at import, from the environment
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._waiters = asyncio.Semaphore(WAITERS)

    def worker(self, workload: Workload) -> Command:
        """One process for both workloads."""
        del workload
        options = ("--workers", "1", "--max-async-tasks", "1000", "--max-prefetch", "1000", "--log-level", "ERROR")
        return Command((sys.executable, "-m", "taskiq", "worker", f"{__name__}:broker", *options))

    async def connect(self) -> None:
        """Open broker and result backend."""
        await broker.startup()

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Futures:
        """All `kiq()` at once, as many on their way as there are connections."""
        del tells_first
        sent = await asyncio.gather(*(self._send(task) for _ in range(n)))
        poll_s = POLL_ALONE_S if n == 1 else POLL_IN_A_CROWD_S
        return Futures([asyncio.ensure_future(self._wait(call, poll_s)) for call in sent])

    async def close(self) -> None:
        """Close broker and result backend."""
        await broker.shutdown()

    async def _send(self, task: Task) -> AsyncTaskiqTask[dict[str, int]]:
        async with self._places:
            return await TASKS[task].kiq(ARGUMENT)

    async def _wait(self, call: AsyncTaskiqTask[dict[str, int]], poll_s: float) -> Any:
        # In the queue's order and few at a time: ten thousand pollers at once would only be in the worker's way.
        async with self._waiters, asyncio.timeout(RESULT_TIMEOUT_S):
            return await fetched(call, poll_s)


async def fetched(call: AsyncTaskiqTask[dict[str, int]], poll_s: float) -> Any:
    """Poll for the result itself: `wait_result()` asks whether it is there first, one round trip more."""
    while True:
        try:
            return (await call.get_result()).return_value
        except ResultGetError:
            await asyncio.sleep(poll_s)
