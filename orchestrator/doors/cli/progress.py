"""Progress of one run: bars on a terminal, plain lines anywhere else. Reads events, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from toolfleet.calls import Failed
from toolfleet.orchestrator.run.updates import (
    CallEnded,
    CallProgressed,
    CallsRequested,
    CallStarted,
    CallSubmitted,
    Event,
    RunEnded,
    TextArrived,
)

SLOW_STEPS: Final = 100
"""A slow call's bar counts hundredths."""

LINE_EVERY: Final = 0.25
"""How much must have happened for one more line."""


@contextmanager
def showing_progress(console: Console) -> Iterator[Callable[[Event], None]]:
    """What to call with each event of one run."""
    if not console.is_terminal:
        yield Lines(console).show
        return
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
    )
    with bars:
        yield Bars(bars).show


class Bars:
    """One bar for each batch of calls, one for each slow call."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._batch: TaskID | None = None
        self._slow: dict[str, TaskID] = {}
        self._in_batch: set[str] = set()

    def show(self, event: Event) -> None:
        """Draw what one event changed."""
        match event:
            case CallsRequested():
                self._in_batch.clear()
                self._batch = self._bars.add_task(f"turn {event.turn}: calls", total=event.calls, note="")
            case CallStarted():
                self._in_batch.add(event.call_id)
            case CallSubmitted():
                self._slow[event.call_id] = self._bars.add_task(
                    f"  {event.tool}", total=SLOW_STEPS, note=f"task submitted: {event.handle}"
                )
                self._count(event.call_id, event.tool)
            case CallProgressed() if event.call_id in self._slow:
                self._bars.update(
                    self._slow[event.call_id], completed=round(event.fraction * SLOW_STEPS), note=event.message
                )
            case CallEnded():
                self._end(event)
            case TextArrived() | RunEnded():
                self._batch_is_complete()
            case _:
                pass

    def _end(self, event: CallEnded) -> None:
        if (bar := self._slow.get(event.call_id)) is not None:
            note = "failed" if isinstance(event.result, Failed) else "done"
            self._bars.update(bar, completed=SLOW_STEPS, note=note)
        self._count(event.call_id, event.tool)

    def _count(self, call_id: str, tool: str) -> None:
        if self._batch is not None and call_id in self._in_batch:
            self._in_batch.discard(call_id)
            self._bars.update(self._batch, advance=1, note=tool)

    def _batch_is_complete(self) -> None:
        if self._batch is not None:
            self._bars.update(self._batch, completed=self._bars.tasks[self._batch].total, note="")
            self._batch = None


class Lines:
    """The same as lines of text, a few for each batch and each slow call."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._turn = 0
        self._owed = 0
        self._back: set[str] = set()
        self._slow: dict[str, float] = {}
        self._shown = 0.0

    def show(self, event: Event) -> None:
        """Print what one event changed, if it is worth a line."""
        match event:
            case CallsRequested():
                self._turn, self._owed, self._shown = event.turn, event.calls, 0.0
                self._back.clear()
                self._say(f"turn {event.turn}: {event.calls} calls")
            case CallSubmitted():
                self._slow[event.call_id] = 0.0
                self._say(f"{event.tool}: task submitted: {event.handle}")
                self._count(event.call_id)
            case CallProgressed() if event.fraction >= self._slow.get(event.call_id, 1.0) + LINE_EVERY:
                self._slow[event.call_id] = event.fraction
                self._say(f"{event.tool}: {event.fraction:.0%} {event.message}")
            case CallEnded():
                if event.call_id in self._slow:
                    self._say(f"{event.tool}: {'failed' if isinstance(event.result, Failed) else 'done'}")
                else:
                    self._count(event.call_id)
            case _:
                pass

    def _count(self, call_id: str) -> None:
        self._back.add(call_id)
        share = len(self._back) / self._owed if self._owed else 1.0
        if share >= min(1.0, self._shown + LINE_EVERY):
            self._shown = share
            self._say(f"turn {self._turn}: {len(self._back)} of {self._owed} calls are back")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
