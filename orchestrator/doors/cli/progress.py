"""Progress of one run: bars on a terminal, plain lines anywhere else. Reads events, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from toolfleet.calls import Failed, ToolResult
from toolfleet.orchestrator.doors.cli.wording import one_line, plural
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import (
    CallAwaitsApproval,
    CallEnded,
    CallProgressed,
    CallsRequested,
    CallSubmitted,
    CallYielded,
    RunEnded,
    RunUpdate,
    TextArrived,
)
from toolfleet.orchestrator.status.call_state import result_state

SLOW_STEPS: Final = 100
"""A slow call's bar counts hundredths."""

LINE_EVERY: Final = 0.25
"""How much must have happened for one more line."""

BAR_CELLS: Final = 20
"""Beside it a tool's name and what it says have room on 80 columns."""

TOOL_CHARACTERS: Final = 20

NOTE_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Shown:
    """What shows a run: what to call with each event, and how to have the screen for oneself for a while."""

    show: Callable[[RunUpdate], None]
    paused: Callable[[], AbstractContextManager[None]] = nullcontext


@contextmanager
def showing_progress(console: Console) -> Iterator[Shown]:
    """Show one run."""
    if not console.is_terminal:
        yield Shown(Lines(console).show)
        return
    bars = Progress(
        # None of this is markup: it may be a model's or a tool's.
        TextColumn("{task.description}", markup=False),
        # In colours that every terminal has: on one with sixteen, rich's own full bar looks like an empty one.
        BarColumn(BAR_CELLS, complete_style="cyan", finished_style="green"),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
        console=console,
    )

    @contextmanager
    def paused() -> Iterator[None]:
        bars.stop()
        try:
            yield
        finally:
            bars.start()

    with bars:
        yield Shown(Bars(bars).show, paused)


class Bars:
    """Shows a run as bars, one for each batch of calls and each slow call. All are full at the end."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._batch: TaskID | None = None
        self._owed = 0
        self._back: set[str] = set()
        self._failed = 0
        self._slow: dict[str, TaskID] = {}

    def show(self, event: RunUpdate) -> None:
        """Draw what one event changed."""
        match event:
            case CallsRequested():
                self._complete_batch()
                self._owed, self._failed = event.calls, 0
                self._back.clear()
                self._batch = self._bars.add_task(
                    f"turn {event.turn}: {'call' if event.calls == 1 else 'calls'}",
                    total=event.calls,
                    count=f"0/{event.calls}",
                    note="",
                )
            case CallAwaitsApproval() if self._batch is not None:
                self._bars.update(self._batch, note=_note(f"{event.tool} waits for approval"))
            case CallSubmitted():
                self._slow[event.call_id] = self._bars.add_task(
                    f"  {one_line(event.tool, TOOL_CHARACTERS)}",
                    total=SLOW_STEPS,
                    count="0%",
                    note=_note(f"task submitted: {event.handle}"),
                )
                self._count(event.call_id, event.tool)
            case CallYielded() if self._batch is not None:
                self._bars.update(self._batch, note=_note(f"{event.tool}: {one_line(event.text, NOTE_CHARACTERS)}"))
            case CallProgressed() if event.call_id in self._slow:
                self._fill(self._slow[event.call_id], event.fraction, event.message)
            case CallEnded():
                self._end(event)
            case TextArrived():
                self._complete_batch()
            case RunEnded():
                self._end_all(event)
            case _:
                pass

    def _end(self, event: CallEnded) -> None:
        if (bar := self._slow.pop(event.call_id, None)) is not None:
            self._fill(bar, 1.0, _end_of(event.result))
        elif event.call_id not in self._back:
            self._failed += isinstance(event.result, Failed)
        self._count(event.call_id, event.tool)

    def _end_all(self, event: RunEnded) -> None:
        results = {call.call_id: call.late_result or call.result for call in event.run.calls}
        for call_id, bar in self._slow.items():
            result = results.get(call_id)
            ended = event.run.state.value
            if result is not None and result_state(result).is_terminal:
                ended = _end_of(result)
            self._fill(bar, 1.0, ended)
        self._slow.clear()
        self._complete_batch("" if event.run.state is State.DONE else event.run.state.value)

    def _fill(self, bar: TaskID, fraction: float, note: str) -> None:
        self._bars.update(bar, completed=fraction * SLOW_STEPS, count=f"{fraction:.0%}", note=_note(note))
        if fraction == 1.0:
            self._bars.stop_task(bar)

    def _count(self, call_id: str, tool: str) -> None:
        if self._batch is not None and call_id not in self._back:
            self._back.add(call_id)
            back = min(len(self._back), self._owed)
            self._bars.update(self._batch, completed=back, count=f"{back}/{self._owed}", note=_note(tool))

    def _complete_batch(self, ended: str = "") -> None:
        if self._batch is not None:
            notes = filter(None, [ended, f"{self._failed} failed" if self._failed else ""])
            count = f"{self._owed}/{self._owed}"
            self._bars.update(self._batch, completed=self._owed, count=count, note=", ".join(notes))
            self._bars.stop_task(self._batch)
            self._batch = None


class Lines:
    """Shows a run as lines of text, a few for each batch of calls and each slow call."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._turn = 0
        self._owed = 0
        self._back: set[str] = set()
        self._slow: dict[str, float] = {}
        self._shown = 0.0

    def show(self, event: RunUpdate) -> None:
        """Print what one event changed, if it is worth a line."""
        match event:
            case CallsRequested():
                self._turn, self._owed, self._shown = event.turn, event.calls, 0.0
                self._back.clear()
                self._say(f"turn {event.turn}: {plural(event.calls, 'call')}")
            case CallSubmitted():
                self._slow[event.call_id] = 0.0
                self._say(f"{event.tool}: task submitted: {event.handle}")
                self._count(event.call_id)
            case CallYielded() if event.text.strip() or event.voids:
                began = "begins anew: " if event.voids else ""
                self._say(f"{event.tool}: {began}{one_line(event.text, NOTE_CHARACTERS)}".rstrip())
            case CallProgressed() if event.fraction >= self._slow.get(event.call_id, 1.0) + LINE_EVERY:
                self._slow[event.call_id] = event.fraction
                self._say(f"{event.tool}: {event.fraction:.0%} {event.message}".rstrip())
            case CallEnded():
                if event.call_id in self._slow:
                    self._say(f"{event.tool}: {_end_of(event.result)}")
                else:
                    self._count(event.call_id)
            case _:
                pass

    def _count(self, call_id: str) -> None:
        self._back.add(call_id)
        share = len(self._back) / self._owed if self._owed else 1.0
        if share >= min(1.0, self._shown + LINE_EVERY):
            self._shown = share
            verb = "is" if self._owed == 1 else "are"
            self._say(f"turn {self._turn}: {len(self._back)} of {plural(self._owed, 'call')} {verb} back")

    def _say(self, text: str) -> None:
        self._console.print(Text(one_line(text)), soft_wrap=True)


def _end_of(result: ToolResult) -> str:
    """Return what a slow call came to, and why if it failed."""
    if isinstance(result, Failed):
        return f"{result_state(result).replace('_', ' ')}: {result.message}"
    return "done"


def _note(text: str) -> str:
    return one_line(text, NOTE_CHARACTERS)
