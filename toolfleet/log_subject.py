"""What a task works on, so that all it logs can say so, a tool's own code and the libraries that it uses included."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

KNOWN_MAX: Final = 10_000
"""Of so many calls and runs at most, and half as many at least, the trace is known to who logs of them in another
task: settling, Celery's own lines."""


class LineKeeper(Protocol):
    """Who keeps what is logged of an attempt at a call."""

    def keep(self, delivery: Any, call: Any, record: logging.LogRecord) -> None:
        """Keep a line of this delivery of a call. May be called on any thread, and does not wait."""


class Subject(NamedTuple):
    """What a task works on."""

    run_id: str
    call_id: str
    traceparent: str | None
    keeper: LineKeeper | None = None
    """None: nobody keeps what is logged of it."""
    delivery: Any = None
    call: Any = None
    """What the keeper knows of the attempt. Both are there anyway: a call that logs nothing costs nothing for it."""


_subject: Final[ContextVar[Subject | None]] = ContextVar("toolfleet_log_subject", default=None)


def log_about_call(
    run_id: str,
    call_id: str,
    traceparent: str | None,
    *,
    keeper: LineKeeper | None = None,
    delivery: Any = None,
    call: Any = None,
) -> None:
    """Let what this task logs from now on, and what it begins, have these ids; also what a tool's own code logs.

    With a `keeper`, that is kept as this delivery's.
    """
    _subject.set(Subject(run_id, call_id, traceparent, keeper, delivery, call))
    if traceparent is not None:
        _known.note(call_id, traceparent)


def log_about_run(run_id: str, traceparent: str | None = None) -> None:
    """Let what this task logs from now on have the id of a run, and of its trace if it has one."""
    _subject.set(Subject(run_id, "", traceparent))
    if traceparent is not None:
        _known.note(run_id, traceparent)


class _Known:
    """The traces of the newest calls and runs, in two halves: the older one is dropped as a whole.

    To drop one by one takes ten times as long as all else that is noted of a call, as a dict that shrinks from its
    beginning looks over what was there.
    """

    def __init__(self) -> None:
        self._newer: dict[str, str] = {}
        self._older: dict[str, str] = {}

    def note(self, of: str, traceparent: str) -> None:
        """Note where something stands."""
        self._newer[of] = traceparent
        if len(self._newer) >= KNOWN_MAX // 2:
            self._older, self._newer = self._newer, {}

    def get(self, of: str) -> str | None:
        """Return it, as long as it is known."""
        return self._newer.get(of) or self._older.get(of)


_known: Final = _Known()


def traceparent_of(call_id: str | None, run_id: str) -> str | None:
    """Return where in its trace a call or a run stands that was worked on here lately; None for any other."""
    return _known.get(call_id or run_id) or _known.get(run_id)


def subject_now() -> Subject | None:
    """Return what the task that we are in works on; None for one that works on nothing alone."""
    return _subject.get()
