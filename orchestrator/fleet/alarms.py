"""When resting runs must be looked at although nothing has come back: one time for each, in a heap.

Pure: whoever asks brings the clock.
"""

from __future__ import annotations

import heapq
from typing import Final

SLACK: Final = 1000
"""How many outdated entries are carried along before the heap is made anew."""


class Alarms:
    """At most one alarm for each run: the last one that was set."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, run_id: str, at_unix_s: float) -> None:
        """Ring for the run then, instead of when it was set before."""
        self._at[run_id] = at_unix_s
        heapq.heappush(self._heap, (at_unix_s, run_id))
        if len(self._heap) > 2 * len(self._at) + SLACK:
            self._heap = [(at, run_id) for run_id, at in self._at.items()]
            heapq.heapify(self._heap)

    def unset(self, run_id: str) -> None:
        """Do not ring for the run."""
        self._at.pop(run_id, None)

    def due(self, now_unix_s: float) -> list[str]:
        """Return the runs whose time has come. Each alarm rings once."""
        due = []
        while self._heap and self._heap[0][0] <= now_unix_s:
            at, run_id = heapq.heappop(self._heap)
            if self._at.get(run_id) == at:
                del self._at[run_id]
                due.append(run_id)
        return due
