"""How this project logs: constant event names with fields, as records of the standard library's loggers.

The library itself sets nothing up and prints nothing; who uses it sees its records by setting up logging of their own.
Commands call `configure_logs`. No traceback shows what a function held: that may be a secret.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from types import TracebackType
from typing import Any

from toolfleet.errors import InvalidSettings
from toolfleet.log_lines import FACTS, Lines, Objects, with_cause
from toolfleet.log_secrets import hide, secrets_in

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
    if sys.stderr.isatty():
        handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s %(message)s"))
    else:
        handler.setFormatter(Objects())
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
    hide(secrets_in(os.environ))
    logging.getLogger("stamina").addFilter(with_cause)
    logging.basicConfig(level=number, handlers=[handler])


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger("toolfleet").critical("uncaught", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(said: threading.ExceptHookArgs) -> None:
    if said.exc_value is not None and not issubclass(said.exc_type, SystemExit):
        _log_uncaught(said.exc_type, said.exc_value, said.exc_traceback)
