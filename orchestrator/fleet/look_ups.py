"""When the calls that are waited for are looked up in the store: soon, then ever more rarely.

A push may be lost, and then the stored result must be found. To ask for all of them again and again would cost the more
the more of them wait, so each is asked for when it has waited about twice as long as the last time. Pure: whoever asks
brings the clock.
"""

from __future__ import annotations

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


class LookUps:
    """Calls by the tick in which they are to be looked up, if anybody still waits for them then."""

    def __init__(self) -> None:
        self._due: dict[int, list[str]] = {}

    def put(self, call_id: str, at_s: float) -> int:
        """Have the call looked up then, or up to a tick later; returns the tick."""
        tick = int(at_s / TICK_S) + 1
        if (due := self._due.get(tick)) is None:
            due = self._due[tick] = []
        due.append(call_id)
        return tick

    def due(self, now_s: float) -> list[tuple[str, int]]:
        """Return the calls whose time has come, each with its tick, and keep them no longer."""
        ticks = sorted(tick for tick in self._due if tick * TICK_S <= now_s)
        return [(call_id, tick) for tick in ticks for call_id in self._due.pop(tick)]

    def clear(self) -> None:
        """Look up nothing of what was put."""
        self._due.clear()
