"""A line's records: what it asks, or why it is refused. Plain values that both formats and the runner speak."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from toolfleet.messages import Message, Usage
from toolfleet.misspelt import complaints
from toolfleet.orchestrator.options import RunOptions

Form = Literal["own", "openai"]
"""Which format a line has, and so its output."""


class Unreadable(Exception):
    """A line cannot be asked; the text says why. Ends as a `Refused`, never leaves this package."""


@dataclass(frozen=True, slots=True)
class LineQuestion:
    """What a line asks: a conversation so far, and how it is to be run."""

    id: str | int
    messages: tuple[Message, ...]
    options: RunOptions


@dataclass(frozen=True, slots=True)
class AskedLine:
    """A line that becomes a run."""

    line: int
    form: Form
    question: LineQuestion


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A line that does not."""

    line: int
    id: str | int | None
    form: Form
    reason: str


@dataclass(frozen=True, slots=True)
class LineFigures:
    """What a line of output says of its run's cost; nothing where it does not."""

    calls: int = 0
    failed_calls: int = 0
    usage: Usage = field(default_factory=Usage)


def count_in(fields: Any, name: str) -> int:
    """Return a count in a file that anybody may have edited; 0 for what is none."""
    found = fields.get(name) if isinstance(fields, dict) else None
    return found if isinstance(found, int) and 0 <= found < 2**53 else 0


def complaint(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with a line's fields, in one line."""
    return "; ".join(complaints(error, model)[:3])
