"""A sparkline: how a number was of late, as the points of a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 120
HEIGHT: Final = 24
PAD: Final = 2


def points(values: Sequence[int], *, most: int, room: int) -> str:
    """Return what an SVG polyline takes: the newest value at the right, `room` values from end to end."""
    most = max(1, most)
    step = WIDTH / max(1, room - 1)
    left = WIDTH - step * (len(values) - 1)
    return " ".join(
        f"{left + at * step:.1f},{HEIGHT - PAD - (HEIGHT - 2 * PAD) * min(value, most) / most:.1f}"
        for at, value in enumerate(values)
    )
