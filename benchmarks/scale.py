"""How much of everything a run measures, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.contender import Workload


class Figure(StrEnum):
    """One measurement; some yield several values."""

    LATENCY = "latency"
    BURST = "burst"
    CONVERSATIONS = "conversations"
    SLEEPS = "sleeps"
    DRAIN = "drain"
    MEMORY = "memory"


QUICK_FIGURES = (Figure.LATENCY, Figure.BURST, Figure.CONVERSATIONS)


@dataclass(frozen=True)
class TrialKind:
    """Figures that are taken from one worker, and whether each round takes them again."""

    figures: tuple[Figure, ...]
    workload: Workload = Workload.SHORT
    every_round: bool = True


TRIALS = (
    TrialKind((Figure.LATENCY, Figure.BURST, Figure.CONVERSATIONS)),
    TrialKind((Figure.SLEEPS,), workload=Workload.SLEEPS),
    # Apart, in fresh processes: a queue of 100,000 leaves its mark on the memory of whoever held it.
    TrialKind((Figure.DRAIN,), every_round=False),
    TrialKind((Figure.MEMORY,), every_round=False),
)


@dataclass(frozen=True)
class Scale:
    """The number of calls per figure. Whoever needs more than `figure_limit_s` for it gets fewer, as reported."""

    rounds: int
    figure_limit_s: float
    long_figure_limit_s: float
    trial_timeout_s: float
    run_limit_s: float
    """No further round begins that would probably end later; the rounds that were run are reported."""
    warm_up_calls: int
    latency_calls: int
    burst_calls: int = 10_000
    conversations: int = 500
    calls_each: int = 20
    sleeps: int = 1_000
    drain_sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    memory_calls: int = 100_000
    memory_step: int = 2_000
    """So many at once while memory is watched: a peak is not a leak."""

    def affordable(self, wanted: int, rate: float) -> int:
        """So many calls as `rate` allows within the limit, at least 100, at most `wanted`."""
        return min(wanted, max(100, int(rate * self.figure_limit_s)))


FULL = Scale(
    rounds=3,
    figure_limit_s=8.0,
    long_figure_limit_s=15.0,
    trial_timeout_s=120.0,
    run_limit_s=720.0,
    warm_up_calls=300,
    latency_calls=1_000,
)
QUICK = Scale(
    rounds=2,
    figure_limit_s=0.8,
    long_figure_limit_s=2.0,
    trial_timeout_s=20.0,
    run_limit_s=54.0,
    warm_up_calls=100,
    latency_calls=200,
)
