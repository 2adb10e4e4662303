"""The findings of the scale bench as tables; the picture is drawn in `picture.py`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.scale.model import Costs, Fleet, checked, needed, predicted
from benchmarks.scale.points import Point

RATES = (1_000, 10_000, 100_000)
MODELLED = (
    Fleet(orchestrators=1, workers=2, shards=1, cores=4, slots=1000),
    Fleet(orchestrators=2, workers=4, shards=1, cores=8, slots=1000),
    Fleet(orchestrators=8, workers=16, shards=4, cores=32, slots=1000),
    Fleet(orchestrators=16, workers=32, shards=8, cores=64, slots=1000),
)


def table_of(points: Sequence[Point], title: str) -> Table:
    """Points of one axis, a line each."""
    table = Table(title=title, title_justify="left")
    for column in (
        "tool",
        "of these",
        "calls",
        "calls/s",
        "µs a call",
        "over the smallest",
        "orchestrator",
        "worker",
        "Redis",
        "its rewriting",
        "commands",
    ):
        table.add_column(column, justify="left" if column == "tool" else "right")
    table.add_column("Redis, bytes a waiting call", justify="right")
    for point in points:
        cost = (point.orchestrator_us, point.worker_us, point.redis_us, point.rewriting_us)
        waiting = point.redis_bytes_per_waiting_call
        table.add_row(
            point.tool,
            f"{point.at:,}",
            f"{point.calls:,}",
            f"{point.calls_per_s:,.0f}",
            f"{point.cpu_us:.0f}",
            "" if point.over_beside is None else f"{point.over_beside:.2f}",
            *(f"{us:.0f}" for us in cost),
            f"{point.commands:.1f}",
            f"{waiting:,.0f}" if waiting is not None else "",
        )
    return table


def table_of_model(points: Sequence[Point], slots: int) -> Table:
    """What the model says of each point, and how far off it is."""
    table = Table(title="The model beside what was measured", title_justify="left")
    for column in (
        "axis",
        "tool",
        "of these",
        "measured/s",
        "cores it had",
        "model/s",
        "measured over model",
        "bounded by",
    ):
        table.add_column(column, justify="left" if column in ("axis", "tool", "bounded by") else "right")
    for each in checked(list(points), slots):
        point = each.point
        rates = (f"{point.calls_per_s:,.0f}", f"{each.cores:.2f}", f"{each.calls_per_s:,.0f}", f"{each.ratio:.2f}")
        table.add_row(point.axis, point.tool, f"{point.at:,}", *rates, each.bound)
    return table


def tables_of_larger(costs: Costs) -> list[Table]:
    """What larger fleets do by the model, and what a number of calls needs."""
    fleets = Table(title="Larger fleets, by the model (tools of 100 ms)", title_justify="left")
    for column in ("orchestrators", "workers", "servers", "cores", "calls/s", "bounded by"):
        fleets.add_column(column, justify="right")
    for fleet in MODELLED:
        rate, bound = predicted(costs, fleet, 0.1)
        counts = (fleet.orchestrators, fleet.workers, fleet.shards, fleet.cores)
        fleets.add_row(*(str(count) for count in counts), f"{rate:,.0f}", bound)
    need = Table(title="What a number of calls keeps wholly busy (tools of 100 ms)", title_justify="left")
    for column in ("calls/s", "orchestrators", "workers", "servers", "cores"):
        need.add_column(column, justify="right")
    for calls_per_s in RATES:
        found = needed(costs, calls_per_s, 0.1, 1000)
        need.add_row(f"{calls_per_s:,}", *(f"{each:.1f}" for each in found.values()))
    return [fleets, need]
