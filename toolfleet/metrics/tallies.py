"""Numbers that cost next to nothing to change: one process's own, made into metrics when somebody asks.

prometheus-client's own counters take a lock for each change. These take none: a thread is switched between Python's
calls and loops, and never within one of these additions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, TypeVar

SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0),
)
"""Upper bounds for what takes from a millisecond to six hours."""

MAX_NAMES: Final = 200
"""Tools, or models, that one process tells apart: each has a few dozen series of its own."""

OTHERS: Final = "(others)"
"""What all further ones are told as."""

T = TypeVar("T")


class Histogram:
    """How many values fell below each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        at = bisect_left(self.bounds, value)
        self.counts[at] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound with how many values were not above it, as prometheus-client wants them."""
        below, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


class ByName(dict[str, T]):
    """Figures by the name of a tool or a model, made when a name is first asked for.

    Of names beyond MAX_NAMES all have the same ones. A dictionary itself, as it is looked into for each call.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> T:
        """Return the figures of a name that has none yet."""
        if len(self) >= MAX_NAMES:
            name = OTHERS
        return self.setdefault(name, self._make())

    def told(self) -> list[tuple[str, T]]:
        """Return all of them, by names that Prometheus can be told."""
        return [(shown(name), figures) for name, figures in tuple(self.items())]


def shown(name: str) -> str:
    """Return a name as a label: in valid UTF-8, and not longer than anybody reads."""
    return name[:200].encode(errors="replace").decode()
