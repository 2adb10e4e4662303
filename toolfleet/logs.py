"""How this project logs: constant event names with fields, one line each, to standard error."""

from __future__ import annotations

import logging
import sys

import structlog

from toolfleet.errors import InvalidSettings


def configure_logs(level: str) -> None:
    """Set the level and form of all logs of this process. Raises InvalidSettings for an unknown level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidSettings(f"unknown log level {level!r}; there are debug, info, warning and error")
    logging.basicConfig(level=number, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(for_a_person=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _rendering(*, for_a_person: bool) -> list[structlog.typing.Processor]:
    if for_a_person:
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
