"""When the calls that are waited for are looked up in the store: soon, then ever more rarely.

A push may be lost, and then the stored result must be found. To ask for all of them again and again would cost the more
the more of them wait, so each is asked for when it has waited about twice as long as the last time. Pure: whoever asks
brings the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_S: Final = 2.0
"""How long a call has waited when it is looked up first. Mostly its result was pushed by then."""

LONGEST_S: Final = 60.0
"""How far two looks at one call are apart at most, unless so many wait that `LOOKS_PER_S` binds."""

LOOKS_PER_S: Final = 1000
"""How many calls are looked up in a second on average, however many wait."""

TICK_S: Final = 1.0
"""Calls that are due within the same tick are looked up together."""


def first_wait_s(waiting: int) -> float:
    """Return how long a call need not be looked up that begins to wait, while so many others do."""
    return max(FIRST_S, waiting / LOOKS_PER_S)


def wait_s(age_s: float, waiting: int) -> float:
    """Return how long a call need not be looked up that has waited so long, while so many calls wait."""
    return max(min(age_s, LONGEST_S), first_wait_s(waiting))


THINNED_AFTER: Final = 4096
"""Of so many calls that were put, at least, those are dropped that nobody waits for any more: most are back long before
their time, and their ids would be kept until then."""


class LookUps:
    """Calls by the tick in which they are to be looked up."""

    def __init__(self, is_waited_for: Callable[[str, int], bool]) -> None:
        """`is_waited_for` tells of a call and a tick whether the call is still to be looked up then."""
        self._is_waited_for = is_waited_for
        self._due: dict[int, list[str]] = {}
        self._until_thinned = THINNED_AFTER

    def put(self, call_id: str, at_s: float) -> int:
        """Have the call looked up then, or up to a tick later; returns the tick."""
        self._until_thinned -= 1
        if self._until_thinned <= 0:
            self._thin()
        tick = int(at_s / TICK_S) + 1
        if (due := self._due.get(tick)) is None:
            due = self._due[tick] = []
        due.append(call_id)
        return tick

    def due(self, now_s: float) -> list[str]:
        """Return the calls whose time has come, and keep them no longer."""
        ticks = sorted(tick for tick in self._due if tick * TICK_S <= now_s)
        return [call_id for tick in ticks for call_id in self._waited_for(tick, self._due.pop(tick))]

    def clear(self) -> None:
        """Look up nothing of what was put."""
        self._due.clear()

    def _thin(self) -> None:
        """Drop the calls that are back. Not before as many are put as are left then: the cost is one look at each."""
        for tick, calls in self._due.items():
            self._due[tick] = self._waited_for(tick, calls)
        self._until_thinned = max(THINNED_AFTER, sum(map(len, self._due.values())))

    def _waited_for(self, tick: int, calls: list[str]) -> list[str]:
        return [call_id for call_id in calls if self._is_waited_for(call_id, tick)]
