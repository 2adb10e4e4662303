"""Calls whose tool asked for time (`RetryAfter`): their message leaves the worker, and this delivery does not count.

Knows messages and their limits; what a tool said is read elsewhere.
"""

from __future__ import annotations

from typing import Final

import redis.asyncio

from toolfleet.calls import ToolCall
from toolfleet.keys import Keys
from toolfleet.outages import until_redis_is_back
from toolfleet.scripts import lua
from toolfleet.streams import GROUP, home_of
from toolfleet.streams.scripts import ROOM
from toolfleet.workers.delivery.message import Delivery

PUT_BACK: Final = lua(__package__, "put_back", before=lua("toolfleet.streams", "carry", before=ROOM))


class PutBack:
    """Puts messages of one event loop back. Only for our own streams."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._keys = keys
        self._script = client.register_script(PUT_BACK)

    async def put(self, delivery: Delivery, call: ToolCall, pause_s: float) -> bool:
        """Let a delivered call wait, and with it all that share its limit. False if it is not ours any more.

        Waits for Redis however long it is away.
        """
        keys = self._keys
        name, _, level = delivery.stream.removeprefix(keys.queue("", 0).removesuffix(":0")).rpartition(":")
        queue = home_of(name) or name
        arguments: list[str | int] = [GROUP, delivery.consumer, delivery.entry_id, call.call_id]
        arguments += [keys.queue(queue, int(level)), max(1, round(pause_s * 1000)), int(call.deadline_unix_s * 1000)]
        arguments += [call.tool, call.tenant, call.run_id, delivery.gates]

        async def put() -> int:
            done: int = await self._script(
                keys=[delivery.stream, keys.scheduled(queue), keys.claim(call.call_id)], args=arguments
            )
            return done

        return bool(await until_redis_is_back(put))
