"""Docket: asyncio tasks on Redis streams, its worker on uvloop like every other one here."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any, ClassVar

import uvloop
from docket import Docket, Worker
from docket.execution import Execution

from benchmarks.contender import ARGUMENT, RESULT_TIMEOUT_S, SLEEP_S, Command, Futures, Task, Workload

WAITING_AT_ONCE = 16
MANY_CONNECTIONS = "?max_connections=5000"
"""A thousand tasks at once run out of redis-py's default of 100."""


async def noop(argument: Any) -> Any:
    """Return the argument."""
    return argument


async def sleep(argument: Any) -> Any:
    """Wait, then return the argument."""
    await asyncio.sleep(SLEEP_S)
    return argument


TASKS = {Task.NOOP: noop, Task.SLEEP: sleep}
CONCURRENCY = {Workload.SHORT: 100, Workload.SLEEPS: 1_000}


class DocketStreams:
    """`add_many()` and `get_result()`."""

    settings: ClassVar[str] = "1 worker process on uvloop, concurrency 100 (sleeps: 1000)"

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url + MANY_CONNECTIONS
        self._docket = Docket(url=self._url)
        self._places = asyncio.Semaphore(WAITING_AT_ONCE)

    def worker(self, workload: Workload) -> Command:
        """One process, as many coroutines as the workload wants."""
        return Command((sys.executable, "-m", __name__, self._url, str(CONCURRENCY[workload])))

    async def connect(self) -> None:
        """Open the docket."""
        await self._docket.__aenter__()

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Futures:
        """All calls with one `add_many()`."""
        del tells_first
        added = await self._docket.add_many([self._docket.call(TASKS[task])(ARGUMENT) for _ in range(n)])
        return Futures([asyncio.ensure_future(self._wait(execution)) for execution in added])

    async def close(self) -> None:
        """Close the docket."""
        await self._docket.__aexit__(None, None, None)

    async def _wait(self, execution: Execution) -> Any:
        # Every waiting call holds a connection of its own, so few wait at a time, in the queue's order.
        async with self._places:
            return await execution.get_result(timeout=timedelta(seconds=RESULT_TIMEOUT_S))


async def work(url: str, concurrency: int) -> None:
    """Serve the tasks for ever."""
    async with Docket(url=url) as docket:
        for task in TASKS.values():
            docket.register(task)
        async with Worker(docket, concurrency=concurrency) as worker:
            await worker.run_forever()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2])))
