"""Flower's Broker tab for the stream transport: what waits in each queue, and what workers have in hand.

Flower knows brokers by the scheme of their URL, and has no door for further ones; this file opens one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlsplit

import flower.views
import redis
import redis.asyncio

from toolfleet.connections import connect_async
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED, SCHEMES, Priority
from toolfleet.waiting.standing import ask_how_many_wait, how_many_wait

LEVELS: Final = tuple(int(level) for level in Priority)


class StreamsBroker:
    """The queues of one fleet, as Flower asks for them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def queues(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return a row for each queue: messages in all, ready for a worker, and unacknowledged.

        All of them count those that are not due yet, which are neither.
        """
        async with aclosing(connect_async(self._settings)) as client:
            return [await self._row(client, name) for name in names]

    async def _row(self, client: redis.asyncio.Redis, name: str) -> dict[str, Any]:
        keys = self._settings.keys
        messages = in_hand = 0
        for level in LEVELS:
            stream = keys.queue(name, level)
            messages += await client.xlen(stream)
            in_hand += await _in_hand(client, stream)
        scheduled = await client.zcard(keys.scheduled(name))
        pipeline = client.pipeline(transaction=False)
        ask_how_many_wait(pipeline, keys, name)
        in_room = how_many_wait(await pipeline.execute())
        return {
            "name": name,
            "messages": messages + scheduled + in_room,
            "messages_ready": messages - in_hand + in_room,
            "messages_unacknowledged": in_hand,
        }


async def _in_hand(client: redis.asyncio.Redis, stream: str) -> int:
    """Return what workers have of a stream; what was handed back is nobody's."""
    try:
        pending = await client.xpending(stream, GROUP)
    except redis.ResponseError:
        return 0  # nobody has consumed it yet
    returned = sum(int(each["pending"]) for each in pending["consumers"] if each["name"] == RETURNED.encode())
    return int(pending["pending"]) - returned


def show_streams(settings: Settings) -> None:
    """Let Flower show the queues of this fleet, if they are on the stream transport."""
    if urlsplit(settings.celery_broker_url).scheme in SCHEMES:
        flower.views.Broker = lambda *_, **__: StreamsBroker(settings)
