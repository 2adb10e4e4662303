"""A log record as a line: for a person at a terminal, or as one JSON object for programs.

Where no person looks on, each line is one JSON object, whoever wrote it: we, a tool, a library, or Python itself. Each
has `run_id`, `call_id` and `trace_id`, which are null where it speaks of none.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from toolfleet.log_secrets import without_secrets
from toolfleet.log_subject import Subject, subject_now, traceparent_of
from toolfleet.terminal import harmless

FACTS: Final = "facts"
"""The attribute of a record that holds its fields."""

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)
"""As W3C Trace Context has it."""


A_CAUSE: Final = re.compile(r"\w+\((['\"])(.*)\1\)", re.DOTALL)
"""An exception with one text, as `repr` shows it."""


class Lines(logging.Formatter):
    """Lines for a person, in which nothing is a command to the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one text."""
        try:
            return harmless(without_secrets(super().format(record)))
        except FAULTY as error:
            return harmless(without_secrets(f"{record.levelname} {record.name} {_unformatted(record, error)}"))


class Objects(logging.Formatter):
    """One JSON object for each record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one text."""
        fields = getattr(record, FACTS, None)
        told: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"message": message_of(record)} if fields is None else {"event": record.__dict__["event"]}),
            **_ids(record, fields or {}),
        }
        told |= {name: value for name, value in (fields or {}).items() if name not in told}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        return without_secrets(_json(told))


def with_cause(record: logging.LogRecord) -> bool:
    """Have a record of stamina's say what is tried again, and when, which it tells in attributes alone. A filter."""
    cause, wait_s = (record.__dict__.get(f"stamina.{name}") for name in ("caused_by", "wait_for"))
    if cause is not None and record.args in (None, ()):
        said = A_CAUSE.fullmatch(str(cause))
        record.msg, record.args = "%s: again in %s s", (said[2] if said else cause, wait_s)
    return True


FAULTY: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a record raises whose arguments do not fit its message, or cannot be shown. A tool's author wrote it."""


def message_of(record: logging.LogRecord) -> str:
    """Return the message of a record, also of one whose arguments do not fit."""
    try:
        return record.getMessage()
    except FAULTY as error:
        return _unformatted(record, error)


def _unformatted(record: logging.LogRecord, error: Exception) -> str:
    message = record.msg if isinstance(record.msg, str) else _shown(record.msg)
    return f"{message[:1000]} (its arguments do not fit: {type(error).__name__})"


def _json(told: Mapping[str, Any]) -> str:
    try:
        return json.dumps(told, default=repr, allow_nan=False)
    except FAULTY:  # no number, a circle, or what cannot be shown
        return json.dumps({name: value if _is_plain(value) else _shown(value) for name, value in told.items()})


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, bool, int))


def _shown(value: object) -> str:
    try:
        return repr(value)
    except FAULTY as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


# --- what a line is about -------------------------------------------------------------------------------------------


def _ids(record: logging.LogRecord, fields: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the three ids of a record: those that it names, completed by what its task works on.

    Tasks of ours may outlive the call that began them, so a fact that names neither run nor call is about none.
    """
    subject = subject_now()
    named = {**record.__dict__, **fields}
    call_id, run_id = (_text(named.get(name)) for name in ("call_id", "run_id"))
    call_id = call_id or _of_celery(record)
    if call_id is None and run_id is None:
        is_ours = record.name.partition(".")[0] == "toolfleet"
        return _of_subject(None if is_ours else subject)
    run_id = run_id or (call_id or "").rsplit(".", 2)[0]
    return {"run_id": run_id, "call_id": call_id, "trace_id": trace_id_of(traceparent_of(call_id, run_id))}


def _of_celery(record: logging.LogRecord) -> str | None:
    """Return the call that a line of Celery's own is about: a call's id is its task's."""
    data = getattr(record, "data", None)
    task_id = data.get("id") if record.name.startswith("celery.") and isinstance(data, dict) else None
    return _text(task_id)


def _of_subject(subject: Subject | None) -> dict[str, str | None]:
    if subject is None:
        return {"run_id": None, "call_id": None, "trace_id": None}
    return {
        "run_id": subject.run_id or None,
        "call_id": subject.call_id or None,
        "trace_id": trace_id_of(subject.traceparent),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the id of the trace that a traceparent names; None for what is none."""
    found = TRACEPARENT.fullmatch(traceparent) if traceparent else None
    return found[1] if found else None
