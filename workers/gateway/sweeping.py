"""Sweeps after workers over HTTPS, as the companions of other workers do for theirs.

Every server does it; of each queue one at a time has the post (`sweep.lua`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from time import monotonic
from typing import Final

import redis.asyncio

from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.names import consumer_name
from toolfleet.streams.scripts import SWEEP
from toolfleet.workers.gateway.announcing import Announcements
from toolfleet.workers.gateway.reading import LEVELS
from toolfleet.workers.gateway.tokens import OFFERED

TAKE_BACK: Final = lua(__package__, "take_back")

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
        self._grace_s = settings.lease_s / 3
        self._missing: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
        """Of each queue the consumers without a lease: since when, and when last seen so."""

    async def run(self) -> None:
        """Sweep for ever. What Redis refuses is tried again."""
        while True:
            try:
                for queue in await self._announcements.queues():
                    await self._sweep_queue(queue)
            except COMMAND_FAILED:
                self._missing.clear()  # a pause of Redis robs nobody
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
        suspects = await self._sweep(keys=streams, args=[*arguments, *self._condemned(queue)])
        now_s, missing = monotonic(), self._missing[queue]
        for name in map(text_of, suspects):
            since_s, seen_s = missing.get(name, (now_s, now_s))
            # Only what was missing at every look counts.
            missing[name] = (since_s if now_s - seen_s <= 3 * self._every_s else now_s, now_s)

    def _condemned(self, queue: str) -> list[str]:
        now_s, missing = monotonic(), self._missing[queue]
        for name in [name for name, (_, seen_s) in missing.items() if now_s - seen_s > 3 * self._every_s]:
            del missing[name]
        return [name for name, (since_s, seen_s) in missing.items() if seen_s - since_s >= self._grace_s]
