"""Whether the store that answers has kept what we wrote: each renewal of the lease leaves a number in it.

A server keeps or loses commands in their order. So if the number of one renewal is still there, all that was written
before that renewal is; what was written after it may be lost when a server has restarted or another one has taken over.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final, NamedTuple

from toolfleet.orchestrator.store.recent import REMEMBERED_S

KEPT_BEATS: Final = int(4 * REMEMBERED_S)
"""About as many as are sent while what was written is remembered."""


class Suspicion(NamedTuple):
    """From when on what was written may be missing, by our monotonic clock; whether anything certainly is."""

    since_s: float
    is_certain: bool


class StoreEpoch:
    """What one orchestrator knows of the store that it writes to. Pure."""

    def __init__(self) -> None:
        self._sent_s: OrderedDict[int, float] = OrderedDict()
        self._beat = 0
        self._acknowledged = 0
        self._server = ""

    def next_beat(self, now_s: float) -> int:
        """Return the number to leave now."""
        self._beat += 1
        self._sent_s[self._beat] = now_s
        if len(self._sent_s) > KEPT_BEATS:
            self._sent_s.popitem(last=False)
        return self._beat

    def heard(self, beat: int, *, found: int, server: str) -> Suspicion | None:
        """Take note that `beat` was left on this server, which had `found` before. None: nothing can be missing."""
        is_certain = found < self._acknowledged
        is_another = self._server not in {"", server}
        self._acknowledged, self._server = beat, server
        if not is_certain and not is_another:
            return None
        return Suspicion(self._sent_s.get(found, -math.inf), is_certain)
