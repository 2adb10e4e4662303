"""The command line: what is measured, and where the results go."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import registry, sizes
from benchmarks.about import about
from benchmarks.report import as_json, as_tables
from benchmarks.rounds import measure
from benchmarks.sizes import Figure, Scale
from benchmarks.summary import Summary, summarise

app = typer.Typer(add_completion=False)
HERE = Path(__file__).parent


@app.command()
def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", envvar="QUICK", help="A smaller run, in a few minutes.")] = False,
    long: Annotated[
        bool,
        typer.Option("--long", help="A million queued, 300,000 waiting, 200,000 calls; with --only and --figures."),
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="A contender; may be repeated.")] = None,
    figures: Annotated[list[Figure] | None, typer.Option(help="A figure; may be repeated.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds over all contenders.")] = None,
    limit_s: Annotated[float | None, typer.Option(min=1, help="Longest time for one figure.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for latest.json and latest.svg. The published ones are a whole run's; others: out/."),
    ] = None,
) -> None:
    """Measure Toolfleet and its neighbours on this machine, in turns.

    Examples: python -m benchmarks --quick   ·   python -m benchmarks --long --only toolfleet --figures drain
    """
    if quick and long:
        raise typer.BadParameter("--quick and --long contradict each other: leave one of them out")
    contenders = buildable(chosen(only, quick=quick))
    size = sized(sizes.QUICK if quick else sizes.LONG if long else sizes.FULL, rounds=rounds, limit_s=limit_s)
    wanted = figures or (list(sizes.QUICK_FIGURES) if quick else list(Figure))
    with terminating():
        summary = summarise(measure(contenders, wanted, size))
    is_whole = not (quick or long or only or figures)
    publish(summary, out or (HERE if is_whole else HERE / "out"), as_json(summary, about(quick=quick, long=long)))


@contextmanager
def terminating() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does: every process that was started is ended on the way out."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def chosen(only: list[str] | None, *, quick: bool) -> dict[str, str]:
    """The contenders to measure, by name; a name that is unknown or not built is refused."""
    present = registry.present()
    if missing := set(only or ()) - set(present):
        raise typer.BadParameter(f"no contender {', '.join(sorted(missing))}; there are: {', '.join(present)}")
    wanted = only or (registry.QUICK if quick else present)
    return {name: path for name, path in present.items() if name in wanted}


def buildable(contenders: dict[str, str]) -> dict[str, str]:
    """Those that are built, or need not be; of each other one line says why it is left out."""
    kept = {}
    for name, path in contenders.items():
        if (why := registry.unbuilt(name)) is None:
            kept[name] = path
        else:
            print(f"{name} is left out, as it cannot be built here: {why}")
    if not kept:
        raise typer.BadParameter("none of these can be built here")
    return kept


def sized(size: Scale, *, rounds: int | None, limit_s: float | None) -> Scale:
    """The scale of this run."""
    if rounds is not None:
        size = replace(size, rounds=rounds)
    if limit_s is not None:
        # A trial takes several figures, some of them several times.
        size = replace(
            size,
            figure_limit_s=limit_s,
            long_figure_limit_s=limit_s,
            drain_limit_s=limit_s,
            trial_timeout_s=10 * limit_s + 120,
        )
    return size


def publish(summary: Summary, out: Path, report: dict[str, object]) -> None:
    """Print the table, write JSON and picture."""
    from benchmarks.plot import draw  # noqa: PLC0415  # loads matplotlib, which only a whole run needs

    out.mkdir(parents=True, exist_ok=True)
    (out / "latest.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    draw(summary, out / "latest.svg")
    # Without a terminal rich folds at 80 columns, which no table of ten columns survives.
    console = Console(width=max(Console().width, 170))
    console.print(*as_tables(summary), sep="\n")
    for failure in summary.failures:
        console.print(f"[red]failed[/] {failure.contender}: {', '.join(failure.figures)}: {failure.reason}")
