"""A run as a file: JSON lines with all that was written down of it, the tools that it was offered, and what it came to.

| line | what it says |
|---|---|
| `{"type": "run", …}` | a run begins: its id, the version that has exported it |
| `{"type": "tool", …}` | a tool as workers announced it when the run was exported |
| `{"type": "event", …}` | one event of its history, in order; the first is `run_started` |
| `{"type": "end", …}` | what the run had come to: its state, its answer, its messages, and how many events there are |

A file may hold any number of runs, one behind the other. Knows no store: what is stored is handed over as events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import Field, TypeAdapter, ValidationError

from toolfleet.calls import Record
from toolfleet.messages import Message
from toolfleet.orchestrator.errors import ExportUnreadable, IllegalTransition
from toolfleet.orchestrator.run.events import RunEvent, RunStarted
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.tool import ToolSpec

VERSION: Final = 1

SHOWN_CHARS: Final = 60
"""Of a line that cannot be read."""


class RunLine(Record):
    """A run begins."""

    type: Literal["run"] = "run"
    v: Literal[1] = VERSION
    run_id: str
    toolfleet: str = ""
    """The version that has exported it."""


class ToolLine(Record):
    """A tool that the run was offered, or that its model has called."""

    type: Literal["tool"] = "tool"
    spec: ToolSpec


class EventLine(Record):
    """One event of the run's history."""

    type: Literal["event"] = "event"
    id: str = ""
    """That of its entry, which begins with the time in milliseconds."""
    event: Annotated[RunStarted | RunEvent, Field(discriminator="type")]


class EndLine(Record):
    """What the run had come to, as the version that has exported it has understood its history."""

    type: Literal["end"] = "end"
    events: int
    state: State
    answer: str | None = None
    reason: str | None = None
    messages: tuple[Message, ...]


_LINE: Final[TypeAdapter[RunLine | ToolLine | EventLine | EndLine]] = TypeAdapter(
    Annotated[RunLine | ToolLine | EventLine | EndLine, Field(discriminator="type")]
)


@dataclass(frozen=True)
class Export:
    """One exported run."""

    began: RunLine
    tools: Mapping[str, ToolSpec]
    events: Sequence[EventLine]
    end: EndLine

    @classmethod
    def of(cls, events: Sequence[EventLine], tools: Mapping[str, ToolSpec]) -> Export:
        """Return what is to be written of a run with this history. Raises IllegalTransition for what is none."""
        run = folded([line.event for line in events])
        end = EndLine(events=len(events), state=run.state, answer=run.answer, reason=run.reason, messages=run.messages)
        return cls(RunLine(run_id=run.run_id, toolfleet=metadata.version("toolfleet")), tools, events, end)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.began.run_id

    @property
    def started(self) -> RunStarted:
        """Its first event."""
        first = self.events[0].event
        assert isinstance(first, RunStarted)  # noqa: S101  # as it was read
        return first

    @cached_property
    def run(self) -> Run:
        """The run as this version understands its history. Raises IllegalTransition."""
        return folded([line.event for line in self.events])

    def lines(self) -> Iterator[str]:
        """Yield the lines of its file, each with its end."""
        tools = (ToolLine(spec=spec) for spec in self.tools.values())
        for line in (self.began, *tools, *self.events, self.end):
            yield line.model_dump_json() + "\n"


def folded(events: Sequence[RunStarted | RunEvent]) -> Run:
    """Return what a history amounts to. Raises IllegalTransition."""
    first, *rest = events
    if not isinstance(first, RunStarted):
        raise IllegalTransition("a history begins with run_started")
    run = Run.start(first)
    for event in rest:
        if isinstance(event, RunStarted):
            raise IllegalTransition(f"run {run.run_id} has begun already")
        run = run.on(event)
    return run


def read_exports(paths: Iterable[Path]) -> list[Export]:
    """Return all runs of these files. Raises ExportUnreadable, and for files without any."""
    found: list[Export] = []
    for path in paths:
        try:
            with path.open("rb") as file:
                found += exports_in(file, str(path))
        except OSError as error:
            raise ExportUnreadable(f"{path} cannot be read: {error.strerror}") from None
    return found


def exports_in(lines: Iterable[bytes], name: str) -> list[Export]:
    """Return the runs that lines tell of; `name` says where they are from. Raises ExportUnreadable."""
    found: list[Export] = []
    begun: _Begun | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        read = _line(line, where)
        if isinstance(read, RunLine):
            if begun is not None:
                _refuse(where, "a run begins, and the one before has no end: the file was cut off")
            begun = _Begun(read, where)
        elif begun is None:
            _refuse(where, "an export of a run begins with its line of the type run")
        elif isinstance(read, EndLine):
            found.append(begun.ended(read, where))
            begun = None
        else:
            begun.take(read)
    if begun is not None:
        raise ExportUnreadable(f"{name} ends in the midst of run {begun.began.run_id[:SHOWN_CHARS]}: it was cut off")
    if not found:
        raise ExportUnreadable(f"{name} holds no run: write one with `toolfleet runs export ID`")
    return found


class _Begun:
    """A run that is being read."""

    def __init__(self, began: RunLine, where: str) -> None:
        self.began = began
        self.where = where
        self.tools: dict[str, ToolSpec] = {}
        self.events: list[EventLine] = []

    def take(self, line: ToolLine | EventLine) -> None:
        """Read its next line."""
        if isinstance(line, ToolLine):
            self.tools[line.spec.name] = line.spec
        else:
            self.events.append(line)

    def ended(self, end: EndLine, where: str) -> Export:
        """Return the whole of it. Raises ExportUnreadable."""
        if end.events != len(self.events):
            _refuse(where, f"{end.events} events were exported, and {len(self.events)} are there")
        export = Export(self.began, self.tools, tuple(self.events), end)
        first = self.events[0].event if self.events else None
        if not isinstance(first, RunStarted) or first.run_id != self.began.run_id:
            _refuse(self.where, "its first event is not the beginning of the run that is named")
        return export


def _line(line: bytes, where: str) -> RunLine | ToolLine | EventLine | EndLine:
    try:
        return _LINE.validate_json(line, extra="ignore")
    except ValidationError as error:
        _refuse_line(error, where)


def _refuse_line(error: ValidationError, where: str) -> NoReturn:
    problem: Any = error.errors(include_url=False, include_context=False)[0]
    if problem["loc"][-1:] == ("v",):
        _refuse(where, "it was written by a newer toolfleet: upgrade this one")
    field = ".".join(str(part) for part in problem["loc"])
    _refuse(where, f"{field + ': ' if field else ''}{problem['msg'][: 4 * SHOWN_CHARS]}")


def _refuse(where: str, why: str) -> NoReturn:
    raise ExportUnreadable(f"{where}: {why}")
