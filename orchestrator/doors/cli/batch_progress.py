"""A batch's progress and figures: a bar on a terminal, a line now and then elsewhere. Reads counts, decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from toolfleet.orchestrator.batch import Summary, Tally
from toolfleet.orchestrator.doors.cli.wording import plural, span

SAY_EVERY_S: Final = 10.0
"""Where no person looks, a line so often."""


@contextmanager
def showing_batch(console: Console, *, total: int) -> Iterator[Callable[[Tally], None]]:
    """Yield what is to be called with the counts, as often as they change."""
    if not console.is_terminal:
        yield BatchLines(console, total).show
        return
    bars = Progress(
        TextColumn("lines"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
        console=console,
    )
    with bars:
        bar = bars.add_task("lines", total=total, pace="")
        clock = Pace(total)

        def show(tally: Tally) -> None:
            bars.update(bar, completed=tally.done_before + tally.written, pace=clock.describe(tally))

        yield show


class Pace:
    """How fast lines are written, and when that will have been all."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began_s = time.monotonic()

    def describe(self, tally: Tally) -> str:
        """Return the rate, the time left and the failures as text."""
        per_s = tally.written / max(1e-9, time.monotonic() - self._began_s)
        left = self._total - tally.done_before - tally.written
        parts = [f"{per_s:.1f}/s"]
        if left and per_s > 0:
            parts.append(f"{span(left / per_s)} left")
        if tally.failed:
            parts.append(f"{tally.failed} failed")
        return ", ".join(parts)


class BatchLines:
    """Shows a batch as lines of text."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._pace = Pace(total)
        self._said_s = time.monotonic()

    def show(self, tally: Tally) -> None:
        """Say how far it is, unless that was said a moment ago."""
        if time.monotonic() - self._said_s < SAY_EVERY_S:
            return
        self._said_s = time.monotonic()
        done = tally.done_before + tally.written
        text = f"{done} of {plural(self._total, 'line')} ({self._pace.describe(tally)})"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_summary(summary: Summary, console: Console) -> None:
    """Print the figures for people."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _rows(summary):
        table.add_row(Text(name, "dim"), Text(value))
    console.print(table)


def _rows(summary: Summary) -> Iterator[tuple[str, str]]:
    before = f", {summary.done_before} written before" if summary.done_before else ""
    refused = f" ({summary.refused} of them cannot be run)" if summary.refused else ""
    yield "lines", f"{summary.ok} ok, {summary.failed} failed{refused}{before}"
    if summary.incomplete:
        yield "", f"{plural(summary.incomplete, 'answer')} cut off, withheld or empty: each line says which"
    if summary.joined:
        yield "", f"{plural(summary.joined, 'run')} had begun before, and went on or had ended"
    yield "calls", f"{summary.calls} ({summary.failed_calls} failed)"
    yield "tokens", f"{summary.usage.input_tokens} in, {summary.usage.output_tokens} out"
    if summary.cost is not None:
        yield "cost", f"{summary.cost:.4f}"
    yield "time", f"{span(summary.wall_s)}, {summary.runs_per_s:g} runs/s"
    if summary.p50_s is not None:
        yield "per run", f"median {span(summary.p50_s)}, p99 {span(summary.p99_s or 0.0)}"
