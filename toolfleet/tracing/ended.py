"""A span that is over, as a value: made anywhere, recorded by `spans.Tracing`. Knows nothing of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Kind = Literal["internal", "client", "producer", "consumer"]
Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
Token = Any
"""What takes a context back that was attached."""


class Ended(NamedTuple):
    """A span that is over, to be recorded as it was: times are Unix seconds, spans traceparents."""

    name: str
    parent: str
    attributes: Attributes
    began_unix_s: float
    ended_unix_s: float
    kind: Kind = "internal"
    span_id: int | None = None
    trace_id: int | None = None
    """Of the first span of a trace."""
    error_type: str = ""
    links: Sequence[str] = ()
    tracestate: str = ""
