"""Where moments lie on a timeline: in proportion, with the stretches folded in which nothing happens. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from toolfleet.orchestrator.doors.page.wording import DAY_S, HOUR_S, MINUTE_S, compact_span

WIDTH: Final = 1000.0
"""Units from one end to the other."""

FOLD_WIDTH: Final = 36.0

MIN_FOLD_S: Final = 60.0
FOLD_SHARE: Final = 0.2
"""A stretch is folded that is longer than this share of all the rest together, and than a minute."""

MAX_FOLDS: Final = 8

STEPS_S: Final = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(MINUTE_S * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * n for n in (1, 2, 3, 6, 12)),
    *(DAY_S * n for n in (1, 2, 7, 14, 30, 90, 365)),
)
MAX_TICKS: Final = 6

LETTER_WIDTH: Final = 18.0
"""Of the names on the axis."""


class Tick(NamedTuple):
    """A named moment."""

    x: float
    label: str


class Fold(NamedTuple):
    """A stretch that is drawn shorter than it was."""

    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from the beginning to the end, bent where it is folded."""

    start_s: float
    moments_s: tuple[float, ...]
    places: tuple[float, ...]
    """Where each of these moments lies; between two of them the scale is straight."""
    ticks: tuple[Tick, ...]
    folds: tuple[Fold, ...]

    @classmethod
    def over(cls, start_s: float, end_s: float, busy: Iterable[tuple[float, float]]) -> Self:
        """Make the axis of what begins and ends so; `busy` are the stretches in which something happens."""
        end_s = max(end_s, start_s + STEPS_S[0])
        gaps = _gaps(start_s, end_s, busy)
        open_s = end_s - start_s - sum(to - since for since, to in gaps)
        step_s = _step_s(open_s)
        # The end moves in steps: while a run goes on, not every bar has to be drawn anew each second.
        end_s = start_s + sum(to - since for since, to in gaps) + max(1, math.ceil(open_s / step_s)) * step_s
        moments, places = _scale(start_s, end_s, gaps)
        axis = cls(start_s, moments, places, (), ())
        folds = tuple(
            Fold(axis.x(since), axis.x(to) - axis.x(since), compact_span(_rounded(to - since))) for since, to in gaps
        )
        named = [(fold.x + fold.width / 2, fold.label) for fold in folds]
        return cls(start_s, moments, places, tuple(_ticks(axis, end_s, step_s, gaps, named)), folds)

    def x(self, moment_s: float) -> float:
        """Return where a moment lies, from 0 to WIDTH."""
        at = min(max(1, bisect_right(self.moments_s, moment_s)), len(self.moments_s) - 1)
        since, to = self.moments_s[at - 1], self.moments_s[at]
        left, right = self.places[at - 1], self.places[at]
        share = 0.0 if to <= since else (moment_s - since) / (to - since)
        return round(left + min(1.0, max(0.0, share)) * (right - left), 1)


def _gaps(start_s: float, end_s: float, busy: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the stretches to fold, in order: the longest ones of those in which nothing happens."""
    idle: list[tuple[float, float]] = []
    reached_s = start_s
    for since, to in sorted(busy):
        if since > reached_s:
            idle.append((reached_s, since))
        reached_s = max(reached_s, to)
    if end_s > reached_s:
        idle.append((reached_s, end_s))
    idle.sort(key=lambda gap: gap[0] - gap[1])
    folded: list[tuple[float, float]] = []
    for since, to in idle[:MAX_FOLDS]:
        rest_s = end_s - start_s - sum(b - a for a, b in folded) - (to - since)
        if to - since >= max(MIN_FOLD_S, FOLD_SHARE * rest_s):
            # A little of it stays, so that what ends and begins there does not touch the fold.
            margin_s = min((to - since) * 0.02, 0.02 * rest_s)
            folded.append((since + margin_s, to - margin_s))
    return sorted(folded)


def _scale(
    start_s: float, end_s: float, gaps: Sequence[tuple[float, float]]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    open_s = end_s - start_s - sum(to - since for since, to in gaps)
    per_s = (WIDTH - FOLD_WIDTH * len(gaps)) / max(open_s, 1e-9)
    moments, places = [start_s], [0.0]
    for since, to in gaps:
        moments += [since, to]
        at = places[-1] + (since - moments[-3]) * per_s
        places += [at, at + FOLD_WIDTH]
    return (*moments, end_s), (*places, WIDTH)


def _step_s(length_s: float) -> float:
    return next((step for step in STEPS_S if length_s / step <= MAX_TICKS), STEPS_S[-1])


def _ticks(
    axis: Axis,
    end_s: float,
    step_s: float,
    gaps: Sequence[tuple[float, float]],
    named: Sequence[tuple[float, str]],
) -> Iterable[Tick]:
    """Yield the ticks: whole steps since the beginning, none within a fold, none so close that names overlap.

    `named` are the middles of the folds, with their names.
    """
    last_x = -WIDTH
    moments = [axis.start_s, *(to for _, to in gaps)]
    for since in moments:
        first = math.ceil((since - axis.start_s) / step_s - 1e-9)
        until = next((a for a, _ in gaps if a > since), end_s)
        for n in range(first, first + MAX_TICKS + 2):
            at_s = axis.start_s + n * step_s
            x = axis.x(at_s)
            if at_s > until + 1e-9:
                break
            label = compact_span(n * step_s)
            is_free = all(abs(x - fold_x) >= (_reach(label) + _reach(fold)) for fold_x, fold in named)
            if x - last_x >= WIDTH / MAX_TICKS / 2 and x <= WIDTH - _reach(label) and is_free:
                last_x = x
                yield Tick(x, label)


def _reach(label: str) -> float:
    """Return how far a name reaches to both sides of its place, on a timeline as narrow as beside a conversation."""
    return len(label) * LETTER_WIDTH / 2 + LETTER_WIDTH


def _rounded(seconds: float) -> float:
    """Return a long time without the parts that nobody asks about."""
    unit = next((unit for unit in (DAY_S, HOUR_S, MINUTE_S) if seconds >= 2 * unit), 1)
    return float(round(seconds / unit) * unit)
