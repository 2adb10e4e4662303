"""A summary as JSON, and as tables for the terminal: the contenders', what only Toolfleet has, and the goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.goals import GOALS, OURS, Goal
from benchmarks.registry import BASELINE
from benchmarks.sizes import FULL
from benchmarks.summary import Summary


class Column(NamedTuple):
    """A figure's heading, the name under which its calls are counted, and how many a full run takes."""

    title: str
    counted: str
    n: int | None = None


CONVERSATIONS = FULL.conversations * FULL.calls_each
RATES = {
    "latency_p50_ms": Column("p50 ms", "latency"),
    "latency_p99_ms": Column("p99 ms", "latency"),
    "burst_calls_per_s": Column("10,000 at once /s", "burst", FULL.burst_calls),
    "conversations_calls_per_s": Column("500 of 20 calls /s", "conversations", CONVERSATIONS),
    "cpu_us_per_call": Column("CPU µs/call", "burst", FULL.burst_calls),
    "sleep_fanout_s": Column("1000 sleeps s", "sleeps"),
}
DRAIN = {
    **{f"drain_{size}_calls_per_s": Column(f"{size:,} queued /s", "drain") for size in (*FULL.drain_sizes, 1_000_000)},
    "drain_ratio": Column("longest / shortest", "drain", max(FULL.drain_sizes)),
    "memory_orchestrator_growth_mib": Column("growth, orchestrator MiB", "memory", FULL.memory_calls),
    "memory_worker_growth_mib": Column("growth, worker MiB", "memory", FULL.memory_calls),
}
PROCESSES = ("orchestrator", "worker", "redis")
CPU = {
    f"{figure}_{process}_us_per_call": Column(f"{title}: {process}", counted)
    for figure, title, counted in (
        ("lone_cpu", "lone", "latency"),
        ("cpu", "burst", "burst"),
        ("conversations_cpu", "conv.", "conversations"),
    )
    for process in PROCESSES
}
OWN: dict[str, Column] = {
    "turn_cpu_us": Column("CPU per turn, runs of 5 one-call turns, µs", "turns"),
    "turn_call_cpu_us": Column("… of which its call, µs", "turns"),
    "turn_beyond_calls_cpu_us": Column("… beyond its call, µs", "turns"),
    "long_run_turn_cpu_us": Column("CPU per turn of a long run, one at a time, µs", "long_turns"),
    "long_run_last_over_first": Column("… its last tenth over its second", "long_turns"),
    "stream_cpu_ms": Column("streamed reply, a token each 5 ms, CPU ms", "stream_tokens"),
    "stream_bare_aiohttp_cpu_ms": Column("… by bare aiohttp, CPU ms", "stream_tokens"),
    "stream_at_once_cpu_ms": Column("… all of it at once, CPU ms", "stream_tokens"),
    "stream_at_once_bare_aiohttp_cpu_ms": Column("… by bare aiohttp, CPU ms", "stream_tokens"),
    "waiting_call_bytes": Column("waiting call, bytes", "waiting_calls"),
    "waiting_calls_idle_cpu_percent": Column("… all of them, idle CPU %", "waiting_calls"),
    "waiting_run_bytes": Column("waiting run, bytes", "waiting_runs"),
    "waiting_runs_idle_cpu_percent": Column("… all of them, idle CPU %", "waiting_runs"),
    "redis_bytes_per_ended_run": Column("Redis per ended run of one call, bytes", "ended_runs"),
    "limits_burst_over_none": Column("burst, limits that nobody reaches over none", "limits"),
    "limits_p50_over_none": Column("… lone call, p50", "limits_lone"),
    "room_moves_per_s": Column("waiting room, moves per second of Redis's CPU", "room"),
    "room_moves_per_s_in_turns": Column("… while 10,001 tenants take turns", "room_tenants"),
    "room_dispatch_us": Column("waiting room, Redis's CPU per dispatch of one tenant, µs", "room"),
    "room_dispatch_with_small_tenants_over_without": Column(
        "… with 10,000 tenants of one call each, over that", "room"
    ),
    "room_bytes_per_call": Column("Redis per waiting call beside its message, bytes", "room_tenants"),
    "room_bytes_per_call_many_tenants": Column("… of a tenant each, bytes", "room_tenants"),
    "traces_burst_unused_more_us": Column(
        "OpenTelemetry without a provider, CPU per call in a burst, µs more", "traces_burst"
    ),
    "traces_lone_unused_more_us": Column("… of a lone call, µs more", "traces_lone"),
    "traces_burst_sampled_more_us": Column("1 % of traces recorded, CPU per call in a burst, µs more", "traces_burst"),
    "traces_lone_sampled_more_us": Column("… of a lone call, µs more", "traces_lone"),
    "watched_worker_over_unseen": Column(
        "250 runs open, 50 people: a worker's part of a call over that unseen", "watching"
    ),
    "watched_redis_us_per_call": Column("… Redis's CPU per call, µs", "watching"),
    "unseen_redis_us_per_call": Column("… unseen, µs", "watching"),
    "watched_api_us_per_call": Column("… the API's CPU per call, µs", "watching"),
}


def as_json(summary: Summary, about: dict[str, Any]) -> dict[str, Any]:
    """Contender → figure → value; all that explains the values stands under `about`."""
    explained = {
        **about,
        "rounds": summary.rounds,
        "settings": summary.settings,
        "calls": summary.calls,
        "times_better_than_celery": summary.times_better,
        "spread_over_rounds": summary.spread,
        "failures": [asdict(failure) for failure in summary.failures],
        "goals": {goal.about: {"found": found, "goal": goal.bound} for goal, found in reached(summary)},
    }
    return {"about": explained, **summary.values}


def as_tables(summary: Summary) -> list[Table]:
    """What was measured, without tables that would be empty."""
    found = [
        by_contender(summary, RATES, f"(x) times better than {BASELINE}; n where it is not the heading's"),
        by_contender(summary, CPU, "processor time, µs per call (orchestrator: whoever sends the calls)"),
        by_contender(summary, DRAIN, "a queue that had filled up while the worker stood; memory after many calls"),
        own_table(summary),
        goals_table(summary),
    ]
    return [table for table in found if table.row_count]


def by_contender(summary: Summary, figures: Mapping[str, Column], title: str) -> Table:
    """A row per contender, its figures with the ratio to the baseline."""
    columns = {
        figure: column for figure, column in figures.items() if any(figure in row for row in summary.values.values())
    }
    table = Table(title=f"{title}; medians over {summary.rounds} rounds", title_justify="left")
    table.add_column("contender", no_wrap=True)
    for column in columns.values():
        table.add_column(column.title, justify="right")
    for name, row in summary.values.items():
        if columns.keys() & row.keys():
            table.add_row(name, *(cell(summary, name, figure, column) for figure, column in columns.items()))
    return table


def cell(summary: Summary, name: str, figure: str, column: Column) -> str:
    """One value, and for how many calls if that is not what the heading says; a dash where nothing was measured."""
    value = summary.values[name].get(figure)
    if value is None:
        return "-"
    ratio = summary.times_better.get(name, {}).get(figure)
    n = summary.calls.get(name, {}).get(column.counted)
    said = f"{number(value)} ({ratio:.2g}x)" if ratio else number(value)
    return f"{said} n={n:,}" if column.n is not None and n is not None and n != column.n else said


def own_table(summary: Summary) -> Table:
    """What only Toolfleet has, a row per figure."""
    table = Table("figure", title="Toolfleet's own figures; CPU is the orchestrator's", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("n", justify="right")
    for figure, column in OWN.items():
        if (value := summary.values.get(OURS, {}).get(figure)) is not None:
            table.add_row(column.title, number(value), counted(summary, column.counted))
    return table


def goals_table(summary: Summary) -> Table:
    """Where the figures stand; a goal whose figures were not taken is left out."""
    table = Table("goal", title="Goals (for a full run on a quiet machine)", title_justify="left")
    table.add_column("found", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("n", justify="right")
    table.add_column("")
    for goal, found in reached(summary):
        met = "reached" if goal.is_met(found) else "not reached"
        table.add_row(goal.about, number(found), goal.bound, counted(summary, goal.counted), met)
    return table


def reached(summary: Summary) -> list[tuple[Goal, float]]:
    """The goals whose figures were taken, each with its number."""
    return [(goal, found) for goal in GOALS if (found := goal.number(summary)) is not None]


def counted(summary: Summary, name: str) -> str:
    """How much of something was measured."""
    n = summary.calls.get(OURS, {}).get(name)
    return "" if n is None else f"{n:,}"


def number(value: float) -> str:
    """A figure as people read it: about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
