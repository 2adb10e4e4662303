"""Messages to all that were not believed: counted in Redis now and then, logged once a minute for each reason.

They leave no dead letter: each process would write one of its own, and a flood of them would push out the others.
"""

from __future__ import annotations

import time
from typing import Final

import redis
from kombu.log import get_logger

from toolfleet.keys import Keys

logger = get_logger("toolfleet.streams")

COUNTER: Final = "refused_broadcasts"

LOG_EVERY_S: Final = 60.0

COUNT_EVERY_S: Final = 0.5


class Refusals:
    """What one channel has refused."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._uncounted = 0
        self._counted_s = float("-inf")
        self._logged_s: dict[str, float] = {}

    def note(self, reason: str) -> None:
        """Remember one."""
        self._uncounted += 1
        now_s = time.monotonic()
        if now_s - self._logged_s.get(reason, float("-inf")) >= LOG_EVERY_S:
            self._logged_s[reason] = now_s
            logger.warning("a control command or event is refused, as others may be for the same reason: %s", reason)

    def count(self, client: redis.Redis) -> None:
        """Add what was refused to the fleet's counters, if it is time. Raises what the client raises; none is lost."""
        now_s = time.monotonic()
        if self._uncounted and now_s - self._counted_s >= COUNT_EVERY_S:
            self._counted_s = now_s
            client.hincrby(self._keys.counters(), COUNTER, self._uncounted)
            self._uncounted = 0
