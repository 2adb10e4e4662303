"""A summary as JSON, and as a table for the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.registry import BASELINE
from benchmarks.summary import Summary

COLUMNS = {
    "latency_p50_ms": "p50 ms",
    "latency_p99_ms": "p99 ms",
    "burst_calls_per_s": "burst /s",
    "conversations_calls_per_s": "conversations /s",
    "cpu_us_per_call": "CPU µs/call",
    "sleep_fanout_s": "1000 sleeps s",
    "drain_ratio": "drain ratio",
    "memory_growth_mib": "growth MiB",
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
    }
    return {"about": explained, **summary.values}


def as_table(summary: Summary) -> Table:
    """A row per contender, its figures with the ratio to the baseline."""
    columns = {
        figure: title for figure, title in COLUMNS.items() if any(figure in row for row in summary.values.values())
    }
    table = Table(title=f"(x) times better than {BASELINE}, median over rounds")
    table.add_column("contender", no_wrap=True)
    for title in columns.values():
        table.add_column(title, justify="right")
    for name in summary.values:
        table.add_row(name, *(cell(summary, name, figure) for figure in columns))
    return table


def cell(summary: Summary, name: str, figure: str) -> str:
    """One value, or a dash where nothing was measured."""
    value = summary.values[name].get(figure)
    if value is None:
        return "-"
    ratio = summary.times_better.get(name, {}).get(figure)
    return f"{number(value)} ({ratio:.2g}x)" if ratio else number(value)


def number(value: float) -> str:
    """A figure as people read it: about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
