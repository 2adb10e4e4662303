"""How this project logs: constant event names with fields, as records of the standard library's loggers.

The library itself sets nothing up and prints nothing; who uses it sees its records by setting up logging of their own.
Commands call `configure_logs`. No traceback shows what a function held: that may be a secret.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from toolfleet.errors import InvalidSettings
from toolfleet.terminal import harmless

FACTS: Final = "facts"
"""The attribute of a record that holds its fields."""

Cause = BaseException | bool | None


class FactLog:
    """Writes facts: the constant name of an event, and fields that say the rest."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, *, exc_info: Cause = None, **fields: Any) -> None:
        """For whoever looks for a fault."""
        self._write(logging.DEBUG, event, fields, exc_info)

    def info(self, event: str, *, exc_info: Cause = None, **fields: Any) -> None:
        """Nothing is wrong."""
        self._write(logging.INFO, event, fields, exc_info)

    def warning(self, event: str, *, exc_info: Cause = None, **fields: Any) -> None:
        """It went on, and somebody may want to know."""
        self._write(logging.WARNING, event, fields, exc_info)

    def error(self, event: str, *, exc_info: Cause = None, **fields: Any) -> None:
        """Something was lost or ended that should not have."""
        self._write(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, **fields: Any) -> None:
        """As `error`, with the exception that is being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(self, level: int, event: str, fields: dict[str, Any], exc_info: Cause) -> None:
        if self._logger.isEnabledFor(level):
            text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
            told = {"event": event, FACTS: fields}
            self._logger.log(level, "%s", text, exc_info=exc_info, extra=told, stacklevel=3)


def configure_logs(level: str) -> None:
    """Set the level and form of all logs of this process, which is a command's. Raises InvalidSettings."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidSettings(f"unknown log level {level!r}; there are debug, info, warning and error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(for_a_person=sys.stderr.isatty()))
    logging.basicConfig(level=number, handlers=[handler])


class _Lines(logging.Formatter):
    """A line for a person, or one of JSON for each fact where nobody looks on."""

    def __init__(self, *, for_a_person: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._for_a_person = for_a_person

    def format(self, record: logging.LogRecord) -> str:
        """The record as one text, in which nothing is a command to a terminal."""
        fields = getattr(record, FACTS, None)
        if self._for_a_person or fields is None:
            return harmless(super().format(record))
        told = {**fields, "event": record.__dict__["event"], "level": record.levelname.lower()}
        told["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat()
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=repr)
