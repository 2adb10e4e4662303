"""What the figures are to reach. Each goal is one number of one run, compared with what it must not be worse than."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.registry import BASELINE
from benchmarks.summary import Summary

OURS, EVENTS, FLOOR = "toolfleet", "toolfleet (events, Flower)", "floor"
OTHER_QUEUES = ("taskiq", "dramatiq", "rq", "docket")
Number = Callable[[Summary], float | None]


@dataclass(frozen=True)
class Goal:
    """A figure of Toolfleet's with its bound."""

    about: str
    number: Number
    at_most: float | None = None
    at_least: float | None = None
    counted: str = ""
    """Under which name the report counts what it stands for."""

    def is_met(self, number: float) -> bool:
        """Whether the number keeps within the bound."""
        if self.at_most is not None and number > self.at_most:
            return False
        return self.at_least is None or number >= self.at_least

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


def own(figure: str) -> Number:
    """A figure as it is."""
    return lambda summary: summary.values.get(OURS, {}).get(figure)


def over(figure: str, other: str, ours: str = OURS) -> Number:
    """A figure over another contender's."""

    def ratio(summary: Summary) -> float | None:
        mine = summary.values.get(ours, {}).get(figure)
        theirs = summary.values.get(other, {}).get(figure)
        return mine / theirs if mine is not None and theirs else None

    return ratio


def over_best(figure: str) -> Number:
    """A rate over that of the quickest other queue."""

    def ratio(summary: Summary) -> float | None:
        mine = summary.values.get(OURS, {}).get(figure)
        best = max((summary.values.get(name, {}).get(figure, 0.0) for name in OTHER_QUEUES), default=0.0)
        return mine / best if mine is not None and best else None

    return ratio


GOALS = (
    Goal("CPU per call in a burst, Redis included (µs)", own("cpu_us_per_call"), at_most=90, counted="burst"),
    Goal("… over the floor's", over("cpu_us_per_call", FLOOR), at_most=2, counted="burst"),
    Goal("burst over the floor's", over("burst_calls_per_s", FLOOR), at_least=0.45, counted="burst"),
    Goal("burst over stock Celery's", over("burst_calls_per_s", BASELINE), at_least=25, counted="burst"),
    Goal("burst over the best other queue's", over_best("burst_calls_per_s"), at_least=10, counted="burst"),
    Goal("lone call, p50 over the floor's", over("latency_p50_ms", FLOOR), at_most=0.8, counted="latency"),
    Goal("lone call, p50 over stock Celery's", over("latency_p50_ms", BASELINE), at_most=0.2, counted="latency"),
    Goal(
        "conversations over the floor's",
        over("conversations_calls_per_s", FLOOR),
        at_least=0.45,
        counted="conversations",
    ),
    Goal("drain, the longest queue over the shortest", own("drain_ratio"), at_least=0.9, counted="drain"),
    Goal(
        "burst with events and Flower, over that without",
        over("burst_calls_per_s", OURS, EVENTS),
        at_least=0.85,
        counted="burst",
    ),
    Goal("turn, CPU beyond its call (µs)", own("turn_beyond_calls_cpu_us"), at_most=350, counted="turns"),
    Goal("long run, last tenth over second", own("long_run_last_over_first"), at_most=1.1, counted="long_turns"),
    # All at once: of a reply that comes token by token most is the waking up, with bare aiohttp as well.
    Goal("streamed reply, CPU (ms)", own("stream_at_once_cpu_ms"), at_most=1, counted="stream_tokens"),
    Goal("waiting call (bytes)", own("waiting_call_bytes"), at_most=1_229, counted="waiting_calls"),
    Goal("waiting calls, idle CPU (%)", own("waiting_calls_idle_cpu_percent"), at_most=1, counted="waiting_calls"),
    Goal("waiting run (bytes)", own("waiting_run_bytes"), at_most=3_072, counted="waiting_runs"),
    Goal("growth of the orchestrator (MiB)", own("memory_orchestrator_growth_mib"), at_most=5, counted="memory"),
    Goal("growth of the worker (MiB)", own("memory_worker_growth_mib"), at_most=5, counted="memory"),
    Goal(
        "Redis per ended run of one call (bytes)", own("redis_bytes_per_ended_run"), at_most=1_638, counted="ended_runs"
    ),
    Goal("burst, limits that nobody reaches over none", own("limits_burst_over_none"), at_least=0.9, counted="limits"),
    Goal(
        "lone call, p50, limits that nobody reaches over none",
        own("limits_p50_over_none"),
        at_most=1.1,
        counted="limits_lone",
    ),
    Goal(
        "waiting room, CPU per dispatch with 10,000 small tenants over without",
        own("room_dispatch_with_small_tenants_over_without"),
        at_most=1.2,
        counted="room",
    ),
    Goal(
        "burst, 1 % of traces recorded, CPU per call more (µs)",
        own("traces_burst_sampled_more_us"),
        at_most=10,
        counted="traces_burst",
    ),
    Goal(
        "lone call, 1 % of traces recorded, CPU more (µs)",
        own("traces_lone_sampled_more_us"),
        at_most=10,
        counted="traces_lone",
    ),
    Goal(
        "watched by 50 people, a worker's part of a call over that unseen",
        own("watched_worker_over_unseen"),
        at_most=1.03,
        counted="watching",
    ),
)
"""KiB and MiB are binary; 1.2 KB of a call and 1.6 KB of a run as well."""
