"""Calls that ask the same at the same time: one of them runs, the others wait in Redis until its answer is there.

Knows messages and what is kept. Which calls ask the same is decided in `perform/shared_answers.py`.
"""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import redis.asyncio

from toolfleet.calls import ToolCall
from toolfleet.keys import Keys
from toolfleet.outages import until_redis_is_back, while_it_may_be_away
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import wire_script
from toolfleet.streams import GROUP, home_of
from toolfleet.workers.delivery.message import Delivery

WAITS_AT_MOST_S: Final = 5.0
"""How soon one that waits is looked at again if nobody wakes it: its finder was purged, or killed from outside."""

BOARD: Final = wire_script("board")
LAND: Final = wire_script("land")


class Boarded(StrEnum):
    """What a call is to do about a question."""

    KEPT = "kept"
    """Its answer is there."""
    FINDS = "finds"
    """This call finds the answer."""
    WAITS = "waits"
    """Another call is finding it; this one's message has left the worker and comes back with the answer."""
    LOST = "lost"
    """The message is another worker's by now."""


class Seat(NamedTuple):
    """What `board` came to; `answer` is what stands in Redis, for KEPT."""

    boarded: Boarded
    answer: bytes = b""


class Boarding:
    """Who finds what, for the calls of one event loop. Waits for a Redis that is away."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._keys = keys
        self._board = client.register_script(BOARD)
        self._land = client.register_script(LAND)

    async def board(self, delivery: Delivery, call: ToolCall, digest: str, *, is_alone: bool = False) -> Seat:
        """Find out what a delivered call is to do; WAITS takes its message away. Only for our own streams.

        `is_alone`: it is to run whatever is kept and whoever else asks, once it has the places that its limits want.
        Raises what Redis refuses it with until the call's deadline.
        """
        keys, (queue, priority) = self._keys, self._place(delivery)
        places = [keys.cached(digest), keys.finder(digest), keys.waiting_for_answer(digest), delivery.stream]
        arguments: list[str | int] = [GROUP, delivery.consumer, delivery.entry_id, call.call_id]
        arguments += [
            keys.queue(queue, priority),
            int(WAITS_AT_MOST_S * 1000),
            int(call.deadline_unix_s * 1000),
            *(delivery.gates, call.tenant, call.run_id, int(is_alone)),
        ]

        async def board() -> list[bytes]:
            reply: list[bytes] = await self._board(keys=[*places, keys.scheduled(queue)], args=arguments)
            return reply

        left_s = max(0.1, call.deadline_unix_s - time.time())
        boarded, *answer = await while_it_may_be_away(board, for_s=left_s, on=COMMAND_FAILED)
        return Seat(Boarded(boarded.decode()), *answer)

    async def land(self, delivery: Delivery, call: ToolCall, digest: str, *, is_kept: bool) -> None:
        """Say that a call that was to find an answer has ended: those that wait have it, or one of them tries next."""
        keys, (queue, _) = self._keys, self._place(delivery)
        places = [keys.finder(digest), keys.waiting_for_answer(digest), keys.scheduled(queue)]

        async def land(*, goes_on: bool = False) -> bool:
            return bool(await self._land(keys=places, args=[call.call_id, int(is_kept), int(goes_on)]))

        are_more = await until_redis_is_back(land)
        while are_more:
            are_more = await until_redis_is_back(partial(land, goes_on=True))

    def _place(self, delivery: Delivery) -> tuple[str, int]:
        """Return the home queue of a delivery's stream, and its level there."""
        name, _, level = delivery.stream.removeprefix(self._keys.queue("", 0).removesuffix(":0")).rpartition(":")
        return home_of(name) or name, int(level)
