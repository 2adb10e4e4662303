"""The floor: two asyncio processes and two Redis streams. No engine, no promises, nothing left to leave out.

The orchestrator collects the calls of a tick into one pipeline; the worker reads in batches and answers, acknowledges
and deletes in one pipeline per batch.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import orjson
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from benchmarks.contender import ARGUMENT, SLEEP_S, Command, Futures, Task, Workload

CALLS, REPLIES, GROUP, FIELD = "floor:calls", "floor:replies", "floor", b"_"
READ_COUNT = 1_000
BLOCK_MS = 2_000
Entry = tuple[bytes, dict[bytes, bytes]]


class CallsOfATick(ABC):
    """A future per call; all that is queued in one tick travels together. What the floors have in common."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[tuple[int, Task]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> Futures:
        """Queue the calls; all that is queued in one tick travels together."""
        del tells_first
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(n)]
        for future in futures:
            call_id = next(self._numbers)
            self._waiting[call_id] = future
            self._outbox.append((call_id, task))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await self._flushing
        return Futures(futures)

    async def _flush(self) -> None:
        outbox, self._outbox, self._flushing = self._outbox, [], None
        for start in range(0, len(outbox), READ_COUNT):
            await self._send(outbox[start : start + READ_COUNT])

    @abstractmethod
    async def _send(self, calls: Sequence[tuple[int, Task]]) -> None:
        """Queue these calls."""


class Floor(CallsOfATick):
    """One task writes, one reads."""

    settings: ClassVar[str] = "redis.asyncio + hiredis + uvloop; one worker; a pipeline per tick; XREADGROUP COUNT 1000"

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self._url = redis_url
        self._redis = Redis.from_url(redis_url, socket_timeout=None)
        self._open = True

    def worker(self, workload: Workload) -> Command:
        """The same for both workloads: coroutines."""
        del workload
        return Command((sys.executable, "-m", "benchmarks.contenders.floor", self._url))

    async def connect(self) -> None:
        """Make the group, so that the first calls are not before its beginning."""
        await make_group(self._redis)
        self._reader = asyncio.create_task(self._read_replies())

    async def close(self) -> None:
        """Stop reading and close the connections."""
        # redis-py may swallow a cancellation that meets an arriving reply; then the flag ends the reader.
        self._open = False
        self._reader.cancel()
        await asyncio.wait([self._reader])
        await self._redis.aclose()

    async def _send(self, calls: Sequence[tuple[int, Task]]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for call_id, task in calls:
            pipe.execute_command("XADD", CALLS, "*", FIELD, orjson.dumps((call_id, task, ARGUMENT)))
        await pipe.execute()

    async def _read_replies(self) -> None:
        last: bytes | str = "0"
        while self._open:
            streams: Any = await self._redis.xread({REPLIES: last}, count=READ_COUNT, block=BLOCK_MS)
            for _, entries in streams:
                for _, fields in entries:
                    call_id, result = orjson.loads(fields[FIELD])
                    self._waiting.pop(call_id).set_result(result)
                last = entries[-1][0]
                await self._redis.xtrim(REPLIES, minid=last, approximate=True)


async def noop(argument: Any) -> Any:
    """Return the argument."""
    return argument


async def sleep(argument: Any) -> Any:
    """Wait, then return the argument."""
    await asyncio.sleep(SLEEP_S)
    return argument


TASKS: dict[str, Callable[[Any], Awaitable[Any]]] = {Task.NOOP: noop, Task.SLEEP: sleep}


async def results_of(calls: Sequence[tuple[int, str, Any]]) -> list[Any]:
    """Run a batch of calls; those that wait do so together."""
    if any(task == Task.SLEEP for _, task, _ in calls):
        return await asyncio.gather(*(TASKS[task](argument) for _, task, argument in calls))
    return [await TASKS[task](argument) for _, task, argument in calls]


async def answer(redis: Redis, entries: list[Entry]) -> None:
    """Run a batch and send its replies, acknowledgements and deletions in one pipeline."""
    calls = [orjson.loads(fields[FIELD]) for _, fields in entries]
    results = await results_of(calls)
    pipe = redis.pipeline(transaction=False)
    for (call_id, _, _), result in zip(calls, results, strict=True):
        pipe.execute_command("XADD", REPLIES, "*", FIELD, orjson.dumps((call_id, result)))
    entry_ids = [entry_id for entry_id, _ in entries]
    pipe.xack(CALLS, GROUP, *entry_ids)
    pipe.xdel(CALLS, *entry_ids)
    await pipe.execute()


async def work(url: str) -> None:
    """Read batches for ever; a batch that waits does not hold up the next."""
    redis = Redis.from_url(url, socket_timeout=None)
    await make_group(redis)
    async with asyncio.TaskGroup() as batches:
        while True:
            streams: Any = await redis.xreadgroup(GROUP, "worker", {CALLS: ">"}, count=READ_COUNT, block=BLOCK_MS)
            for _, entries in streams:
                batches.create_task(answer(redis, entries))


async def make_group(redis: Redis) -> None:
    """Make the consumer group unless it is there."""
    with suppress(ResponseError):
        await redis.xgroup_create(CALLS, GROUP, id="0", mkstream=True)


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1]))
