"""From rounds to figures: medians, and how many times better than the baseline in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.registry import BASELINE
from benchmarks.rounds import Failure, Record

LESS_IS_BETTER = frozenset({"latency_p50_ms", "latency_p99_ms", "cpu_us_per_call", "sleep_fanout_s"})
COMPARED = LESS_IS_BETTER | {"burst_calls_per_s", "conversations_calls_per_s"}
Table = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Summary:
    """Contender → figure → value, each a median over the rounds that took it.

    `times_better` compares with the baseline round by round; above 1 is better, whichever way the figure runs.
    """

    rounds: int
    values: Table
    times_better: Table
    spread: dict[str, dict[str, tuple[float, float]]]
    calls: dict[str, dict[str, int]]
    settings: dict[str, str]
    failures: list[Failure]


def summarise(record: Record) -> Summary:
    """Condense a record; a figure that nobody measured is absent."""
    samples: dict[str, dict[str, list[float]]] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    calls: dict[str, dict[str, int]] = {}
    settings: dict[str, str] = {}
    for (round_, name), findings in record.findings.items():
        baseline = values_of(record, round_, BASELINE)
        for finding in findings:
            settings[name] = finding.settings
            calls.setdefault(name, {}).update(finding.calls)
            for figure, value in finding.values.items():
                collect(samples, name, figure, value)
                if figure in COMPARED and figure in baseline and name != BASELINE:
                    collect(ratios, name, figure, times_better(figure, value, baseline[figure]))
    return Summary(
        rounds=record.rounds,
        values=medians(samples),
        times_better=medians(ratios),
        spread={
            name: {figure: (min(many), max(many)) for figure, many in figures.items() if len(many) > 1}
            for name, figures in samples.items()
        },
        calls=calls,
        settings=settings,
        failures=record.failures,
    )


def values_of(record: Record, round_: int, name: str) -> dict[str, float]:
    """All values that one contender reached in one round."""
    values: dict[str, float] = {}
    for finding in record.findings.get((round_, name), []):
        values.update(finding.values)
    return values


def times_better(figure: str, value: float, baseline: float) -> float:
    """How many times better `value` is than the baseline's."""
    return baseline / value if figure in LESS_IS_BETTER else value / baseline


def collect(table: dict[str, dict[str, list[float]]], name: str, figure: str, value: float) -> None:
    """Add one sample."""
    table.setdefault(name, {}).setdefault(figure, []).append(value)


def medians(table: dict[str, dict[str, list[float]]]) -> Table:
    """The median of every cell."""
    return {name: {figure: median(many) for figure, many in row.items()} for name, row in table.items()}


def median(values: Iterable[float]) -> float:
    """A median with four significant digits: the rest is noise."""
    return float(f"{statistics.median(values):.4g}")
