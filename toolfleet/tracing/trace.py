"""Where in which trace something stands, as a record that is stored and sent: W3C's headers, and no more.

Pure: knows nothing of OpenTelemetry. Ids of spans that several processes must agree on are derived from the call's id:
the span of a call is named before it begins and recorded when its result is written down, by whoever does that.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Final

from pydantic import Field

from toolfleet.calls import Record

_SPAN: Final = b"toolfleet.span\0"
_SENDING: Final = "#send"

Omitted = Annotated[str, Field(exclude_if=lambda text: not text)]


class Trace(Record):
    """The span that stands for a run, and what goes with it to every call."""

    traceparent: str
    """The run's own span."""
    parent: Omitted = ""
    """The span that it was begun below; empty for the first of its trace."""
    tracestate: Omitted = ""
    agent: Omitted = ""
    """The agent whose run it is, if it is one's."""
    baggage: Annotated[str, Field(exclude_if=lambda text: not text, repr=False)] = ""
    links: tuple[str, ...] = Field(default=(), exclude_if=lambda links: not links)
    """Spans that it follows: what the run was before it was resumed, and whoever resumed it."""
    since_unix_s: float = Field(default=0.0, exclude_if=lambda since: not since)
    """When it began, if not with the run: when that was resumed."""

    @property
    def is_sampled(self) -> bool:
        """Whether spans of it are recorded."""
        return is_sampled(self.traceparent)

    def of_call(self, call_id: str) -> str:
        """Return the span of a call as a traceparent; of a trace that is not recorded that of the run."""
        return at_span(self.traceparent, span_of_call(call_id)) if self.is_sampled else self.traceparent


def ids_of(traceparent: str) -> tuple[int, int]:
    """Return the ids of a trace and its span that we have named ourselves."""
    return int(traceparent[3:35], 16), int(traceparent[36:52], 16)


@lru_cache(maxsize=512)
def is_sampled(traceparent: str) -> bool:
    """Return whether spans below this one are recorded. Remembered: calls that are not recorded have one in common."""
    return bool(_flags(traceparent) & 1)


def _flags(traceparent: str) -> int:
    try:
        return int(traceparent[-2:], 16)
    except ValueError:
        return 0


def at_span(traceparent: str, span_id: int) -> str:
    """Return another span of the same trace."""
    return f"{traceparent[:36]}{span_id:016x}{traceparent[52:]}"


def span_of_call(call_id: str) -> int:
    """Return the id of the span that a call has in its orchestrator."""
    return int.from_bytes(sha256(_SPAN + call_id.encode()).digest()[:8]) or 1


def span_of_sending(call_id: str) -> int:
    """Return the id of the span of the message that takes a call to a worker."""
    return span_of_call(call_id + _SENDING)
