"""Calls that this worker should not run: passed to one that serves their tool, or serves it as they were offered it.

The message leaves this worker as if it had never been here: the delivery does not count, and a claim stays with it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import redis.asyncio

from toolfleet.calls import WIRE_VERSION, ToolCall
from toolfleet.catalog import Announcement, LiveWorkers, version_unserved
from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.lanes import lanes_with
from toolfleet.outages import until_redis_is_back
from toolfleet.streams import GROUP, Priority, home_of
from toolfleet.streams.scripts import FORWARD
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery

UNSERVED_FOR_S: Final = 30.0
"""How long a call waits for a worker with its tool, as runs do: workers are restarted one after another."""

LOOK_AGAIN_S: Final = 1.0
"""How soon such a call is looked at again, and how old a look at the live workers may be."""

PASS_AGAIN_S: Final = 0.2
"""How soon a call that somebody serves comes up again, where it could not be given to that worker alone."""


class Passed(IntEnum):
    """What became of the message."""

    LOST = 0
    """Another worker owned it already."""
    TO_A_LANE = 1
    """It is in a lane whose readers can run it."""
    BACK = 2
    """It waits, and will be in the queue again."""
    NOT = 3
    """It is still this worker's: nobody else could be found."""


class Forwarder:
    """Passes on calls of one event loop."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._keys = keys
        self._seal = seal
        self._live = LiveWorkers(client, keys, seal)
        self._forward = client.register_script(FORWARD)
        self._workers: list[Announcement] = []
        self._looked_s = -LOOK_AGAIN_S

    async def pass_on(
        self, delivery: Delivery, call: ToolCall, *, can_run: bool, version: int = WIRE_VERSION
    ) -> Passed:
        """Pass a delivered call on to a worker that serves it, and reads the version that it is written in.

        With `can_run`, which says that this worker could run it too, only to one that serves the version it was offered
        with. Waits for Redis however long it is away. After `BACK` on a broker without streams the caller sends it
        again.
        """

        async def look() -> tuple[Mapping[str, int], Passed | None]:
            workers = [worker for worker in await self._live_workers() if version in worker.reads]
            lanes = lanes_with(workers, call.tool, delivery.contract, call.version) if delivery.contract else {}
            if not lanes and not can_run:
                lanes = lanes_with(workers, call.tool, version=call.version)
            if can_run and not lanes:
                return lanes, Passed.NOT
            return lanes, await self._move(delivery, call, lanes, can_run=can_run) if delivery.stream else None

        lanes, passed = await until_redis_is_back(look)
        if passed is not None:
            return passed
        return Passed.NOT if can_run else await _hold_back(delivery, call, is_served=bool(lanes))

    async def pass_on_unopened(self, delivery: Delivery, *, served: ToolSpec | None) -> Passed:
        """The same for one whose call nobody has opened yet. `NOT`, too, for what cannot be believed.

        `served`: its tool as it is here.
        """
        try:
            call = self._seal.open_call(delivery.text, delivery.mac)
        except Refused:
            return Passed.NOT
        if (call.call_id, call.tool) != (delivery.task_id, delivery.task):
            return Passed.NOT
        return await self.pass_on(delivery, call, can_run=served is not None and call.is_for(served.version))

    def unserved(self, call: ToolCall) -> str:
        """Return what is said of a call that nobody could be found for."""
        if not call.version:
            return f"no live worker serves {call.tool}"
        live = {spec.version for worker in self._workers for spec in worker.tools if spec.name == call.tool}
        return version_unserved(call.tool, call.version, live)

    async def _live_workers(self) -> list[Announcement]:
        if time.monotonic() - self._looked_s >= LOOK_AGAIN_S:
            self._workers = (await self._live.read()).ours
            self._looked_s = time.monotonic()
        return self._workers

    async def _move(self, delivery: Delivery, call: ToolCall, lanes: Mapping[str, int], *, can_run: bool) -> Passed:
        name, _, level = delivery.stream.removeprefix(self._keys.queue("", 0).removesuffix(":0")).rpartition(":")
        home, priority = home_of(name) or name, Priority(int(level))
        keys = [delivery.stream, self._keys.scheduled(home)]
        for lane in _by_chance(lanes):
            keys += [self._keys.lane(lane), self._keys.queue(lane, priority)]
        pause_s = 0.0 if can_run else PASS_AGAIN_S if lanes else LOOK_AGAIN_S
        arguments: list[str | int] = [GROUP, delivery.consumer, delivery.entry_id, self._keys.queue(home, priority)]
        arguments += [int(pause_s * 1000), -1 if lanes else int(UNSERVED_FOR_S * 1000)]
        return Passed(
            await self._forward(keys=keys, args=[*arguments, int(call.deadline_unix_s * 1000), self._keys.claim("")])
        )


async def _hold_back(delivery: Delivery, call: ToolCall, *, is_served: bool) -> Passed:
    """Wait a moment, on a broker without lanes. Returns whether the message should go to the end of its queue."""
    now_unix_s = time.time()
    pause_s = PASS_AGAIN_S if is_served else LOOK_AGAIN_S
    waits_since_s = delivery.passed_unix_s or now_unix_s
    if now_unix_s + pause_s >= call.deadline_unix_s:
        return Passed.NOT
    if not is_served and now_unix_s + pause_s > waits_since_s + UNSERVED_FOR_S:
        return Passed.NOT
    await asyncio.sleep(pause_s)
    return Passed.BACK


def _by_chance(lanes: Mapping[str, int]) -> list[str]:
    """Return the lanes in a random order, weighted by how many calls their readers take (Efraimidis, Spirakis 2006)."""
    named = [lane for lane in lanes if lane]
    return sorted(named, key=lambda lane: random.random() ** (1 / lanes[lane]), reverse=True)
