"""What is to befall a process, as the environment variables that tell it so.

Values and their text; `toolfleet.testing.instruments` acts on them inside the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Self

from toolfleet.points import Point

KILL_VARIABLE: Final = "TOOLFLEET_TEST_KILL"
"""`effect_done:3` or `effect_done:3:*.1.0`: SIGKILL the process that is there the third time, counting matching ids."""

STOP_VARIABLE: Final = "TOOLFLEET_TEST_STOP"
"""The same with SIGSTOP; somebody else sends SIGCONT."""

CLOCK_VARIABLE: Final = "TOOLFLEET_TEST_CLOCK_OFFSET_S"
"""Seconds by which the process's wall clock goes ahead of the machine's; negative for behind."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Where it happens: the `nth` time that the process reaches `point` with an id like `matching` (as in a shell)."""

    point: Point
    nth: int = 1
    matching: str = "*"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `point[:nth[:matching]]`. Raises ValueError."""
        point, _, rest = text.partition(":")
        nth, _, matching = rest.partition(":")
        return cls(Point(point), int(nth or 1), matching or "*")

    def __str__(self) -> str:
        return f"{self.point.value}:{self.nth}:{self.matching}"

    def concerns(self, point: Point, subject_id: str) -> bool:
        """Return whether this arrival counts."""
        return point is self.point and fnmatchcase(subject_id, self.matching)


def kill_at(point: Point | str, nth: int = 1, matching: str = "*") -> dict[str, str]:
    """Return the environment of a process that is to kill itself (SIGKILL) at a point."""
    return {KILL_VARIABLE: str(Fate(Point(point), nth, matching))}


def stop_at(point: Point | str, nth: int = 1, matching: str = "*") -> dict[str, str]:
    """Return the environment of a process that is to stop itself (SIGSTOP) at a point."""
    return {STOP_VARIABLE: str(Fate(Point(point), nth, matching))}


def clock_offset(seconds: float) -> dict[str, str]:
    """Return the environment of a process whose wall clock is wrong."""
    return {CLOCK_VARIABLE: repr(float(seconds))}
