"""Lanes: queues beside a queue, each read by some of its consumers only, for what not every one of them can run.

Readers give their word for it as they keep their lease. What waits in a lane that nobody reads any more goes to the
queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import redis

from toolfleet.keys import Keys
from toolfleet.skipped import text_of
from toolfleet.streams import scripts
from toolfleet.streams.names import GROUP, RETURNED, home_of

AT_ONCE: Final = 500
"""Messages that one script call sends home."""


class Lanes:
    """The lanes of one namespace. `levels` are those of every queue."""

    def __init__(self, keys: Keys, levels: Sequence[int]) -> None:
        self._keys = keys
        self._levels = levels

    def read(self, client: redis.Redis, lane: str, consumer: str, for_ms: int) -> None:
        """Note that a consumer reads a lane, for so long."""
        client.register_script(scripts.KEEP_LANE)(keys=self._keys_of(lane), args=[lane, consumer, for_ms])

    def leave(self, client: redis.Redis, lane: str, consumer: str) -> None:
        """Note that a consumer no longer reads a lane. What waits there goes to the queue if it was the last reader."""
        home = home_of(lane) or lane
        streams = [self._keys.queue(name, level) for level in self._levels for name in (lane, home)]
        retire = client.register_script(scripts.RETIRE_LANE)
        arguments: list[str | int] = [GROUP, RETURNED, lane, consumer, AT_ONCE, self._keys.claim("")]
        while retire(keys=[*self._keys_of(lane), *streams], args=arguments) >= AT_ONCE:
            pass

    def of(self, client: redis.Redis, queue: str) -> list[str]:
        """Return the lanes of a queue, by name; a lane has none."""
        names = cast("set[bytes]", client.smembers(self._keys.lanes(queue)))
        return sorted(text_of(name) for name in names)

    def _keys_of(self, lane: str) -> list[str]:
        return [self._keys.lane(lane), self._keys.lanes(home_of(lane) or lane)]
