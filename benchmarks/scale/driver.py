"""One orchestrator in a process of its own: `python -m benchmarks.scale.driver REDIS_URL`.

Takes an order a line on standard input and answers each with a line: JSON both.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import orjson
import psutil
import uvloop
from pydantic import BaseModel

from benchmarks.processes import cpu_s
from toolfleet.garbage import collect_rarely
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings

SECRET = "not-a-secret-only-a-benchmark"
UNSETTLED = 2_000_000
MESSAGE_CALLS = 100
"""Calls of one assistant message, unless an order says another number; more calls are more messages at once."""


class Order(BaseModel):
    """Send calls of a tool; the answer comes once all are settled or, without `settled`, once all are in the queue."""

    tool: str
    calls: int
    message_calls: int = MESSAGE_CALLS
    settled: bool = True
    collect: bool = False
    """Send nothing; wait for the calls that an earlier order has sent."""


class Answer(BaseModel):
    """How long it took, what it cost this process, and what the process holds."""

    seconds: float
    cpu_s: float
    resident_bytes: int


class WrongResults(Exception):
    """A call came back with something else than its argument, or did not come back."""


def fleet_settings(redis_url: str) -> Settings:
    """What all processes of the bench share."""
    return Settings(redis_url=redis_url, secret=SECRET, max_unsettled_calls=UNSETTLED, call_timeout_s=4 * 3600)


class Driver:
    """An orchestrator, and the calls that it has sent and not collected."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._sent: list[asyncio.Task[Sequence[ToolMessage]]] = []

    async def carry_out(self, order: Order) -> Answer:
        """Do what the order says. Raises WrongResults."""
        began, used_s = time.perf_counter(), cpu_s(psutil.Process())
        if not order.collect:
            await self._send(order)
        if order.settled:
            await self._collect()
        memory = psutil.Process().memory_info().rss
        return Answer(
            seconds=time.perf_counter() - began, cpu_s=cpu_s(psutil.Process()) - used_s, resident_bytes=memory
        )

    async def _send(self, order: Order) -> None:
        dispatched = self._orchestrator.dispatched + order.calls
        for first in range(0, order.calls, order.message_calls):
            numbers = range(first, min(first + order.message_calls, order.calls))
            asked = tuple(RequestedCall(id=str(x), name=order.tool, arguments=f'{{"x": {x}}}') for x in numbers)
            self._sent.append(asyncio.create_task(self._orchestrator.execute(AssistantMessage(tool_calls=asked))))
        while self._orchestrator.dispatched < dispatched:  # nothing tells it
            failed = [task for task in self._sent if task.done() and task.exception()]
            if failed:
                await failed[0]
            await asyncio.sleep(0.005)

    async def _collect(self) -> None:
        sent, self._sent = self._sent, []
        for task in sent:
            for message in await task:
                if message.content != message.tool_call_id:
                    raise WrongResults(f"call {message.tool_call_id} came back as {message.content!r}")


async def serve(redis_url: str) -> None:
    """Carry out orders until standard input ends."""
    loop = asyncio.get_running_loop()
    async with Orchestrator(settings=fleet_settings(redis_url)) as orchestrator:
        while not await orchestrator.catalog.offered():  # noqa: ASYNC110  # workers begin in other processes
            await asyncio.sleep(0.05)
        driver = Driver(orchestrator)
        print("{}", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            answer = await driver.carry_out(Order.model_validate(orjson.loads(line)))
            print(answer.model_dump_json(), flush=True)


if __name__ == "__main__":
    collect_rarely()  # as every service of Toolfleet does
    uvloop.run(serve(sys.argv[1]))
