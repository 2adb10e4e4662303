"""`python -m benchmarks.scale`: see the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console

from benchmarks.about import about
from benchmarks.scale.kept import put_into
from benchmarks.scale.model import Costs, is_modelled, reference
from benchmarks.scale.points import LEAST_CALLS, Axis, Point, of_orchestrators, of_runs, of_waiting, of_workers
from benchmarks.scale.stand import CONCURRENCY
from benchmarks.scale.telling import table_of, table_of_model, tables_of_larger

FULL = {
    "workers": (1, 2, 4, 8),
    "orchestrators": (1, 2, 4),
    "waiting": (1_000, 10_000, 100_000, 1_000_000),
    "runs": (10, 100, 1_000, 10_000),
}
QUICK = {"workers": (1, 2), "orchestrators": (1, 2), "waiting": (1_000, 10_000), "runs": (10, 1_000)}
CALLS, QUICK_CALLS, QUICK_WAITING = 20_000, 2_000, 10_000

console = Console(stderr=True, highlight=False)


def measured(axes: list[Axis], *, quick: bool, most: int, at: list[int] | None = None) -> Iterator[Point]:
    """All points of these axes, or those `at` some of their places."""
    sizes, calls, least_calls = (QUICK, QUICK_CALLS, QUICK_WAITING) if quick else (FULL, CALLS, LEAST_CALLS)
    wanted = {axis: tuple(count for count in counts if not at or count in at) for axis, counts in sizes.items()}
    if "workers" in axes:
        yield from of_workers(wanted["workers"], calls)
    if "orchestrators" in axes:
        yield from of_orchestrators(wanted["orchestrators"], calls)
    if "waiting" in axes:
        counts = tuple(count for count in wanted["waiting"] if count <= most)
        yield from of_waiting(counts, least_calls, beside=min(sizes["waiting"]))
    if "runs" in axes:
        yield from of_runs(wanted["runs"], least_calls)


def main(
    *,
    only: Annotated[
        list[str] | None, typer.Option(help="workers, orchestrators, waiting or runs; may be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A look of half a minute.")] = False,
    most: Annotated[int, typer.Option(min=1_000, help="No more calls than these in the queue.")] = 1_000_000,
    at: Annotated[
        list[int] | None, typer.Option(help="Only these places of the axes; may be repeated. To measure in parts.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Put the points into this file, in the place of earlier ones.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw them, as SVG.")] = None,
) -> None:
    """Measure what more workers, orchestrators, waiting calls and runs do, and print what a model makes of it.

    Takes about a quarter of an hour and 3 GB of memory, most of it for a million waiting calls.

    Examples: python -m benchmarks.scale   ·   python -m benchmarks.scale --only waiting --at 100000 --json out.json
    """
    known = get_args(Axis)
    axes = [cast("Axis", axis) for axis in only or known]
    if unknown := [axis for axis in axes if axis not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}", param_hint="--only")
    points = []
    for point in measured(axes, quick=quick, most=most, at=at):
        console.print(
            f"{point.axis} {point.at:,} {point.tool}: {point.calls_per_s:,.0f}/s, {point.cpu_us:.0f} µs a call"
        )
        points.append(point)
    tell(points)
    if as_json:
        put_into(as_json, points, about(quick=quick))
    if picture:
        from benchmarks.scale.picture import draw  # noqa: PLC0415  # loads matplotlib

        draw(points, picture)


def tell(points: list[Point]) -> None:
    """Print the tables."""
    out = Console(width=None if sys.stdout.isatty() else 130)
    for axis in dict.fromkeys(point.axis for point in points):
        out.print(table_of([point for point in points if point.axis == axis], f"By {axis}"))
    if any(is_modelled(point) for point in points):
        out.print(table_of_model(points, CONCURRENCY))
    out.print(*tables_of_larger(Costs.of(reference(points))), sep="\n")


if __name__ == "__main__":
    typer.run(main)
