"""Toolfleet with everything on: signed calls and results, validated arguments, stored results, claims."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import orjson

from benchmarks.contender import ARGUMENT, Command, Task, Workload
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.cli.running_flower import door_at, running_flower
from toolfleet.orchestrator.run.updates import CallEnded, RunUpdate
from toolfleet.settings import Settings

ARGUMENTS = orjson.dumps(ARGUMENT).decode()
SECRET = "not-a-secret-only-a-benchmark"
UNSETTLED = 2_000_000
"""More than the default, or dispatch would wait before the longest queue of the drain test is full."""
CONCURRENCY = "1000"
LOOK_EVERY_S = 0.002


class MessageBatch:
    """The calls of one assistant message."""

    def __init__(
        self, orchestrator: Orchestrator, tool: str, n: int, *, dispatched: int, tells_first: bool = False
    ) -> None:
        self._orchestrator = orchestrator
        self._dispatched = dispatched
        calls = tuple(RequestedCall(id=str(position), name=tool, arguments=ARGUMENTS) for position in range(n))
        message = AssistantMessage(tool_calls=calls)
        self._first = asyncio.Event()
        self._messages: asyncio.Task[Sequence[ToolMessage]] = asyncio.create_task(
            orchestrator.execute(message, on_event=self._hear) if tells_first else orchestrator.execute(message)
        )

    async def queued(self) -> None:
        """See `Batch`. Whoever calls `execute` is told of results only, so the count is looked at."""
        while self._orchestrator.dispatched < self._dispatched:  # noqa: ASYNC110  # nothing tells it
            await asyncio.sleep(LOOK_EVERY_S)

    async def first(self) -> None:
        """See `Batch`."""
        await self._first.wait()

    async def results(self) -> list[Any]:
        """See `Batch`."""
        return [orjson.loads(message.content) for message in await self._messages]

    def _hear(self, event: RunUpdate) -> None:
        if isinstance(event, CallEnded):
            self._first.set()


class Toolfleet:
    """A tool with an effect: claimed before it starts."""

    settings: ClassVar[str] = "asyncio pool, 1 process, concurrency 1000, HMAC, validation, stored results, claims"
    noop: ClassVar[str] = "noop"
    options: ClassVar[Sequence[str]] = ()

    def __init__(self, redis_url: str) -> None:
        self.fleet_settings = Settings(redis_url=redis_url, secret=SECRET, max_unsettled_calls=UNSETTLED)
        self.orchestrator = Orchestrator(settings=self.fleet_settings)
        self._exit = AsyncExitStack()
        self._submitted = 0

    def worker(self, workload: Workload) -> Command:
        """One io worker for both workloads."""
        del workload
        return Command(
            (
                *(sys.executable, "-m", "toolfleet.workers", "--pool", "io", "--concurrency", CONCURRENCY),
                *("--import", "benchmarks.contenders.toolfleet_tools", "--import", "benchmarks.parked_tools"),
                *self.options,
            ),
            self.fleet_settings.as_environment(),
        )

    async def connect(self) -> None:
        """Connect, and wait until the worker has announced its tools."""
        await self._exit.enter_async_context(self.orchestrator)
        while not await self.orchestrator.catalog.offered():  # noqa: ASYNC110  # it happens in another process
            await asyncio.sleep(0.05)

    async def submit(self, task: Task, n: int, *, tells_first: bool = False) -> MessageBatch:
        """One assistant message with `n` calls."""
        self._submitted += n
        tool = "sleep" if task is Task.SLEEP else self.noop
        return MessageBatch(self.orchestrator, tool, n, dispatched=self._submitted, tells_first=tells_first)

    async def close(self) -> None:
        """Disconnect."""
        await self._exit.aclose()


class ToolfleetReadOnly(Toolfleet):
    """A tool without an effect: nothing to claim."""

    settings: ClassVar[str] = "as toolfleet, with a read-only tool: no claims"
    noop: ClassVar[str] = "noop_read_only"


class ToolfleetEvents(Toolfleet):
    """With Celery's task events on, and Flower listening to them."""

    settings: ClassVar[str] = "as toolfleet, with task events and a running Flower (its processor time apart)"
    options: ClassVar[Sequence[str]] = ("--events",)

    async def connect(self) -> None:
        """Start Flower first, so that it hears everything."""
        door = door_at("127.0.0.1", _free_port(), remedy="run the benchmark again")
        flower = self._exit.enter_context(running_flower(door, self.fleet_settings))
        await asyncio.to_thread(flower.wait_until_it_listens)
        await super().connect()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
