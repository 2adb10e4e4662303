"""Where this process's logging hands over what tools log: the handler, and a record as the text that is kept.

A tool logs by Python's `logging`, on its own task or thread; the handler sees by the context whose call that is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import Final

from toolfleet.log_lines import FACTS, FAULTY, message_of
from toolfleet.log_secrets import HIDDEN, without_secrets
from toolfleet.log_subject import Subject, subject_now
from toolfleet.strict_json import encodable

OFF: Final = "off"

MESSAGE_CHARS: Final = 2000
"""How much is kept of a message, from its beginning."""

TRACEBACK_CHARS: Final = 2000
"""How much of a traceback, up to its end, which says what was raised."""

NAME_CHARS: Final = 100

LOOKED_AT_CHARS: Final = 100_000
"""How much of a text is looked through for secrets, before it is cut to what is kept."""

SECRET_CHARS_MIN: Final = 4
"""A shorter argument stands in other words too."""

HANDED_OVER_BY: Final = ("", "celery.task")
"""The loggers that all others pass on to; Celery's for tasks passes nothing on."""

PRINTED: Final = "celery.redirected"
"""What Celery makes of `print`. Whether it does depends on how a worker is started, so nobody should count on it."""

OURS: Final = "toolfleet"

_traceback: Final = logging.Formatter()


class _OfCalls(logging.Handler):
    """Hands what a call's task logs to whoever keeps it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record over. A line that cannot be kept costs the tool nothing."""
        subject = subject_now()
        if subject is None or subject.keeper is None or not is_of(subject, record):
            return
        try:
            subject.keeper.keep(subject.delivery, subject.call, record)
        except Exception:  # noqa: BLE001  # as each handler of the standard library: logging fails nobody's work
            self.handleError(record)


def is_of(subject: Subject, record: logging.LogRecord) -> bool:
    """Return whether a record is a call's own. Tasks of ours outlive it in its context: they name their subject."""
    if record.name == PRINTED:
        return False
    if record.name.partition(".")[0] != OURS:
        return True
    return bool(getattr(record, FACTS, record.__dict__).get("call_id") == subject.call_id)


def listen(level: str) -> None:
    """Have what is logged in this process handed over from this level on. Done once, however often it is called.

    What is printed stays as it is: handlers that are there go on with the level that their logger had.
    """
    if level == OFF:
        return
    number = logging.getLevelNamesMapping()[level.upper()]
    for name in HANDED_OVER_BY:
        logger = logging.getLogger(name)
        if (name and logger.propagate) or any(isinstance(each, _OfCalls) for each in logger.handlers):
            continue
        before = logger.getEffectiveLevel()
        for handler in logger.handlers:
            handler.setLevel(max(handler.level, before))
        if before > number:
            logger.setLevel(number)
        logger.addHandler(_OfCalls(number))


def text_of(record: logging.LogRecord, secrets: Collection[str]) -> str:
    """Return a record as it is kept: no secret in it, bounded, and fit for JSON."""
    fields = getattr(record, FACTS, None)
    message = message_of(record) if fields is None else _of_fact(record, fields)
    kept = _shortened(_without(message[:LOOKED_AT_CHARS], secrets), MESSAGE_CHARS)
    if (trace := _trace_of(record)) and len(trace := _without(trace[-LOOKED_AT_CHARS:], secrets)) > TRACEBACK_CHARS:
        trace = f"…{trace[-TRACEBACK_CHARS:]}"
    return encodable(f"{kept}\n{trace}" if trace else kept)


def _of_fact(record: logging.LogRecord, fields: dict[str, object]) -> str:
    said = [f"{name}={value!r}" for name, value in fields.items() if name not in ("run_id", "call_id", "tool")]
    return " ".join([record.__dict__["event"], *said])


def _trace_of(record: logging.LogRecord) -> str:
    try:
        raised = _traceback.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    except FAULTY as error:
        raised = f"(a traceback that cannot be shown: {type(error).__name__})"
    return "\n".join(filter(None, (raised, record.stack_info)))


def _without(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, HIDDEN).replace(json.dumps(secret)[1:-1], HIDDEN)
    return without_secrets(text)


def _shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


def short(name: object) -> str:
    """Return a name as it is kept."""
    return encodable(str(name)[:NAME_CHARS])
