"""Sweeps after workers over HTTPS, as the companions of other workers do for theirs.

Every server does it; of each queue one at a time has the post (`sweep.lua`).
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

import redis.asyncio

from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import lua, wire_library
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.lease_keeper import Suspects
from toolfleet.streams.names import OFFERED, consumer_name
from toolfleet.streams.scripts import SWEEP
from toolfleet.workers.gateway.announcing import Announcements
from toolfleet.workers.gateway.reading import LEVELS

TAKE_BACK: Final = lua(__package__, "take_back", before=wire_library("uncounted"))

ACK_WITHIN_S: Final = 10.0
"""How soon a call that was polled must be acknowledged."""


class Sweeper:
    """Returns what workers over HTTPS have left."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, announcements: Announcements) -> None:
        self._keys = settings.keys
        self._announcements = announcements
        self._sweep = client.register_script(SWEEP)
        self._take_back = client.register_script(TAKE_BACK)
        self._every_s = min(settings.heartbeat_s, settings.lease_s / 6)
        self._suspects = Suspects(look_every_s=self._every_s, grace_s=settings.lease_s / 3)

    async def run(self) -> None:
        """Sweep for ever. What Redis refuses is tried again."""
        while True:
            try:
                for queue in await self._announcements.queues():
                    await self._sweep_queue(queue)
            except COMMAND_FAILED:
                self._suspects.clear()  # a pause of Redis robs nobody
            await asyncio.sleep(self._every_s)

    async def _sweep_queue(self, queue: str) -> None:
        streams = [self._keys.queue(queue, level) for level in LEVELS]
        await self._take_back(keys=streams, args=[GROUP, RETURNED, OFFERED, int(ACK_WITHIN_S * 1000)])
        observer, term_ms = consumer_name(), int(2000 * self._every_s)
        arguments: list[str | int] = [
            GROUP,
            RETURNED,
            observer,
            self._keys.lease(""),
            self._keys.sweeper(queue),
            term_ms,
        ]
        now_s = monotonic()
        for name in await self._sweep(keys=streams, args=[*arguments, *self._suspects.condemned(now_s)]):
            self._suspects.note(text_of(name), now_s)
