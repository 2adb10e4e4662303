"""Calls whose tool wants them tried again later: back into the queue, and their limits shut meanwhile, for everybody.

The delivery does not count as an attempt, and a claim stays with the message.
"""

from __future__ import annotations

from typing import Final

import redis
import redis.asyncio

from toolfleet.calls import ToolCall
from toolfleet.keys import Keys
from toolfleet.outages import until_redis_is_back, until_redis_is_back_blocking
from toolfleet.scripts import wire_script
from toolfleet.streams import GROUP, home_of
from toolfleet.workers.delivery.message import Delivery

POSTPONE: Final = wire_script("postpone")


async def postpone(
    client: redis.asyncio.Redis, keys: Keys, delivery: Delivery, call: ToolCall, *, pause_s: float
) -> bool:
    """Hand a delivered call back for `pause_s`. Returns False if it is another worker's by now.

    All calls that meet one of its limits wait as long; those without limits in common go on. Waits for Redis however
    long it is away. Only on our own streams: `delivery.stream` must not be empty.
    """
    script = client.register_script(POSTPONE)
    where, arguments = _keys_of(keys, delivery), _arguments(keys, delivery, call, pause_s)

    async def hand_back() -> bool:
        return bool(await script(keys=where, args=arguments))

    return await until_redis_is_back(hand_back)


def postpone_now(client: redis.Redis, keys: Keys, delivery: Delivery, call: ToolCall, *, pause_s: float) -> bool:
    """Do the same, for processes without a loop."""
    script = client.register_script(POSTPONE)
    where, arguments = _keys_of(keys, delivery), _arguments(keys, delivery, call, pause_s)
    return bool(until_redis_is_back_blocking(lambda: script(keys=where, args=arguments)))


def home(keys: Keys, delivery: Delivery) -> tuple[str, int]:
    """Return the home queue of a delivery's stream, and its level there."""
    name, _, level = delivery.stream.removeprefix(keys.queue("", 0).removesuffix(":0")).rpartition(":")
    return home_of(name) or name, int(level)


def _keys_of(keys: Keys, delivery: Delivery) -> list[str]:
    return [delivery.stream, keys.scheduled(home(keys, delivery)[0])]


def _arguments(keys: Keys, delivery: Delivery, call: ToolCall, pause_s: float) -> list[str | int]:
    place: list[str | int] = [GROUP, delivery.consumer, delivery.entry_id, keys.queue(*home(keys, delivery))]
    whose: list[str | int] = [call.call_id, call.tenant, call.run_id, int(call.deadline_unix_s * 1000)]
    return [*place, int(pause_s * 1000), keys.claim(""), *whose]
