"""How much of everything a run measures, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    TURNS = "turns"
    STREAM = "stream"
    ENDED_RUNS = "ended_runs"
    WAITING_CALLS = "waiting_calls"
    WAITING_RUNS = "waiting_runs"
    LIMITS = "limits"
    ROOM = "room"
    TRACES = "traces"
    WATCHING = "watching"


OWN_FIGURES = (
    Figure.TURNS,
    Figure.STREAM,
    Figure.ENDED_RUNS,
    Figure.WAITING_CALLS,
    Figure.WAITING_RUNS,
    Figure.LIMITS,
    Figure.ROOM,
    Figure.TRACES,
    Figure.WATCHING,
)
"""Of what only Toolfleet has the notion: runs, turns, models, handles, limits."""

QUICK_FIGURES = tuple(figure for figure in Figure if figure not in (Figure.SLEEPS, Figure.TRACES, Figure.WATCHING))


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
    TrialKind((Figure.DRAIN,)),
    TrialKind((Figure.MEMORY,), every_round=False),
    TrialKind((Figure.TURNS, Figure.STREAM, Figure.ENDED_RUNS)),
    TrialKind((Figure.WAITING_CALLS,), every_round=False),
    TrialKind((Figure.WAITING_RUNS,), every_round=False),
    TrialKind((Figure.LIMITS, Figure.ROOM), every_round=False),
    # Each starts fleets of its own, beside a worker that has nothing to do.
    TrialKind((Figure.TRACES,), every_round=False),
    TrialKind((Figure.WATCHING,), every_round=False),
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
    drain_limit_s: float = 60.0
    runs: int = 200
    """Runs of `short_turns` turns with one call each."""
    short_turns: int = 5
    runs_at_once: int = 20
    long_turns: int = 1_000
    long_runs: int = 3
    """Long runs one after another, of which the median counts: a machine is quicker and slower within one."""
    streams: int = 100
    streams_at_once: int = 20
    stream_tokens: int = 300
    ended_runs: int = 1_000
    waiting_calls: int = 100_000
    waiting_runs: int = 10_000
    idle_s: float = 10.0
    room_calls: int = 100_000
    room_tenants: int = 10_000
    room_pairs: int = 3
    traced_rounds: int = 15
    traced_calls: int = 2_000
    traced_lone: int = 200
    watched_runs: int = 250
    watched_pairs: int = 2
    viewers: int = 50

    def affordable(self, wanted: int, rate: float) -> int:
        """So many calls as `rate` allows within the limit, at least 100, at most `wanted`."""
        return min(wanted, max(100, int(rate * self.figure_limit_s)))


FULL = Scale(
    rounds=3,
    figure_limit_s=8.0,
    long_figure_limit_s=15.0,
    trial_timeout_s=300.0,
    run_limit_s=1_800.0,
    warm_up_calls=300,
    latency_calls=1_000,
)
QUICK = Scale(
    rounds=2,
    figure_limit_s=2.0,
    long_figure_limit_s=4.0,
    trial_timeout_s=120.0,
    run_limit_s=240.0,
    warm_up_calls=100,
    latency_calls=200,
    drain_limit_s=20.0,
    runs=40,
    long_turns=200,
    streams=20,
    ended_runs=300,
    waiting_calls=20_000,
    waiting_runs=1_000,
    idle_s=4.0,
    room_calls=20_000,
    room_pairs=1,
)
LONG = replace(
    FULL,
    rounds=1,
    long_figure_limit_s=600.0,
    trial_timeout_s=3_600.0,
    drain_sizes=(1_000, 10_000, 100_000, 1_000_000),
    drain_limit_s=900.0,
    memory_calls=200_000,
    waiting_calls=300_000,
    idle_s=30.0,
)
"""By hand, for one contender: what takes minutes by itself."""
