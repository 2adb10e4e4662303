"""Spans of OpenTelemetry: the one file that speaks its API, imported only where there is a provider of its SDK.

What several processes must agree on (the span of a run, of a call) is recorded with an id that is known before, once
it has ended, by whoever writes that down. That takes a tracer whose `id_generator` can be told the next id, as the
SDK's can.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from opentelemetry import baggage, context as otel, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from toolfleet.supervision import start_thread
from toolfleet.tracing.conventions import ERROR_TYPE
from toolfleet.tracing.ended import Attributes, Ended, Kind, Token
from toolfleet.tracing.trace import Trace
from toolfleet.trusted import trusted

CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SHOWN: Final = frozenset({"true", "1", "span_only", "span_and_event"})
"""The values of that variable that want arguments, results and messages in spans."""

FLUSH_WITHIN_MS: Final = 5000

KNOWN_CONTEXTS: Final = 512
"""Contexts that are not made again."""

_BAGGAGE: Final = W3CBaggagePropagator()
_trace: Final = trusted(Trace)

_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}


class Tracing:
    """Records the spans of this process."""

    def __init__(self, provider: Any, tracer: trace.Tracer, ids: _GivenIds) -> None:
        self._provider = provider
        self._tracer = tracer
        self._sampler: Any = tracer.sampler  # type: ignore[attr-defined]  # the SDK's has one, and so has an id generator
        self._ids = ids
        self._flushing = threading.Lock()
        self._is_flush_wanted = False
        self._dropped: Trace | None = None
        self.shows_content = os.environ.get(CONTENT, "").strip().lower() in SHOWN

    # --- where we are -------------------------------------------------------------------------------------------

    def begin(
        self, name: str, attributes: Attributes, *, links: Sequence[str] = (), parent: Trace | None = None
    ) -> Trace:
        """Ask the sampler for a new span below the current one, or below `parent`; it is recorded once it has ended."""
        context = otel.get_current() if parent is None else _context(parent.traceparent, parent.tracestate)
        above = trace.get_current_span(context).get_span_context()
        span = self._tracer.start_span(name, context, attributes=attributes, links=_links(links))
        own = span.get_span_context()
        carried = _header_of_baggage(context) if parent is None else parent.baggage
        return _trace(
            traceparent=_traceparent(own),
            parent=_traceparent(above) if above.is_valid and own.trace_flags.sampled else "",
            tracestate=own.trace_state.to_header() if own.trace_state else "",
            baggage=carried,
            links=tuple(links),
        )

    def begin_alone(self, name: str) -> Trace:
        """Do as `begin` where there is no span; what is not recorded and carries nothing is the same each time.

        So it costs little to make, here and where it is read: of most traces no more is made than the id that the
        sampler goes by.
        """
        context = otel.get_current()
        trace_id = self._ids.generate_trace_id()
        sampled = self._sampler.should_sample(context, trace_id, name, SpanKind.INTERNAL, None, ())
        carried = _header_of_baggage(context)
        is_recorded = sampled.decision.is_sampled()
        if not is_recorded and not carried and self._dropped is not None:
            return self._dropped
        flags = TraceFlags(self._ids.flags | (TraceFlags.SAMPLED if is_recorded else TraceFlags.DEFAULT))
        own = SpanContext(trace_id, self._ids.generate_span_id(), False, flags, sampled.trace_state)
        state = own.trace_state.to_header() if own.trace_state else ""
        begun = _trace(traceparent=_traceparent(own), tracestate=state, baggage=carried)
        if not is_recorded and not carried:
            self._dropped = begun
        return begun

    def current(self) -> str:
        """Return the span that we are in, as a traceparent; "" for none."""
        own = trace.get_current_span().get_span_context()
        return _traceparent(own) if own.is_valid else ""

    def here(self) -> Trace | None:
        """Return the span that we are in, for what is begun below it; None for none."""
        context = otel.get_current()
        if not context:  # mostly, and then the API need not be asked what is in it
            return None
        own = trace.get_current_span(context).get_span_context()
        if not own.is_valid:
            return None
        return _trace(
            traceparent=_traceparent(own),
            tracestate=own.trace_state.to_header() if own.trace_state else "",
            baggage=_header_of_baggage(context),
        )

    def attach(self, traceparent: str, tracestate: str = "", carried: str = "") -> Token:
        """Make a span of elsewhere the current one, with the baggage that came along."""
        return otel.attach(_context(traceparent, tracestate, carried))

    def attach_headers(self, headers: Mapping[str, str]) -> Token | None:
        """Make the span that a request names the current one, unless it is in one already; None: it names none."""
        if trace.get_current_span().get_span_context().is_valid:
            return None
        context = _context(headers.get("traceparent", ""), headers.get("tracestate", ""))
        if not trace.get_current_span(context).get_span_context().is_valid:
            return None
        return otel.attach(_BAGGAGE.extract(headers, context))

    def attach_span(self, span: Span, carried: str = "") -> Token:
        """Make a span of this process the current one, with this baggage and no other."""
        context = trace.set_span_in_context(span, Context())
        return otel.attach(_BAGGAGE.extract({"baggage": carried}, context) if carried else context)

    @staticmethod
    def leave() -> None:
        """Be in no span from here on, and carry nothing: whatever this task was begun by has its own."""
        otel.attach(Context())

    @staticmethod
    def detach(token: Token) -> None:
        """Take back what was attached."""
        otel.detach(token)

    # --- spans --------------------------------------------------------------------------------------------------

    def record(self, ended: Ended) -> None:
        """Record a span that is over."""
        with self._ids.given(ended.span_id, ended.trace_id):
            span = self._tracer.start_span(
                ended.name,
                _context(ended.parent, ended.tracestate),
                _KINDS[ended.kind],
                ended.attributes,
                _links(ended.links),
                start_time=_ns(ended.began_unix_s),
            )
        self.end(span, ended.error_type, at_unix_s=max(ended.began_unix_s, ended.ended_unix_s))

    def open(
        self,
        name: str,
        parent: str,
        attributes: Attributes,
        *,
        tracestate: str = "",
        kind: Kind = "internal",
        links: Sequence[str] = (),
    ) -> Span:
        """Begin a span now; `end` it."""
        context = _context(parent, tracestate)
        return self._tracer.start_span(name, context, _KINDS[kind], attributes, _links(links))

    @staticmethod
    def end(span: Span, error_type: str = "", *, at_unix_s: float | None = None) -> None:
        """End a span. What went wrong is said by its kind alone: words may hold what nobody is to read."""
        if error_type:
            span.set_attribute(ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR))
        span.end(None if at_unix_s is None else _ns(at_unix_s))

    @staticmethod
    def name_of(span: Span) -> str:
        """Return a span of this process as a traceparent."""
        return _traceparent(span.get_span_context())

    def flush_soon(self) -> None:
        """Have what is recorded exported without waiting for more of it. Returns at once."""
        self._is_flush_wanted = True
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None and self._flushing.acquire(blocking=False):
            start_thread("traces", self._flush, flush, again=False)

    def _flush(self, flush: Any) -> None:
        try:
            self._is_flush_wanted = False
            flush(FLUSH_WITHIN_MS)
        finally:
            self._flushing.release()
        if self._is_flush_wanted:  # what was recorded meanwhile may have missed it
            self.flush_soon()


def tracing_here() -> Tracing | None:
    """Return what records spans here; None without a provider whose tracers can be told the next id."""
    provider = trace.get_tracer_provider()
    tracer = provider.get_tracer("toolfleet", version("toolfleet"))
    own = getattr(tracer, "id_generator", None)
    if own is None or not hasattr(tracer, "sampler"):
        return None
    if not isinstance(own, _GivenIds):
        own = tracer.id_generator = _GivenIds(own)  # type: ignore[attr-defined]  # it has one, as we have seen
    return Tracing(provider, tracer, own)


class _GivenIds:
    """The generator that its user has chosen, but for spans whose ids are given."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._given = threading.local()

    def given(self, span_id: int | None, trace_id: int | None) -> _Given:
        """Have the next span of this thread take these ids, where they are not None."""
        return _Given(self._given, span_id, trace_id)

    @property
    def flags(self) -> int:
        """What a traceparent says of ids that are generated here."""
        is_random = getattr(self._own, "is_trace_id_random", None)  # of older versions none
        return TraceFlags.RANDOM_TRACE_ID if is_random is not None and is_random() else TraceFlags.DEFAULT

    def generate_span_id(self) -> int:
        given: int | None = getattr(self._given, "span_id", None)
        return self._own.generate_span_id() if given is None else given

    def generate_trace_id(self) -> int:
        given: int | None = getattr(self._given, "trace_id", None)
        return self._own.generate_trace_id() if given is None else given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class _Given:
    """For the body, the ids are these."""

    __slots__ = ("_place", "_span_id", "_trace_id")

    def __init__(self, place: threading.local, span_id: int | None, trace_id: int | None) -> None:
        self._place, self._span_id, self._trace_id = place, span_id, trace_id

    def __enter__(self) -> None:
        self._place.span_id, self._place.trace_id = self._span_id, self._trace_id

    def __exit__(self, *_: object) -> None:
        self._place.span_id = self._place.trace_id = None


@lru_cache(maxsize=KNOWN_CONTEXTS)
def _context(traceparent: str, tracestate: str = "", carried: str = "") -> Context:
    """Return the context of a span of elsewhere. Made once: what is not sampled has the same one for all its calls."""
    span_context = _span_context(traceparent, tracestate)
    context = Context()
    if span_context is not None:
        context = trace.set_span_in_context(NonRecordingSpan(span_context), context)
    return _BAGGAGE.extract({"baggage": carried}, context) if carried else context


def _span_context(traceparent: str, tracestate: str) -> SpanContext | None:
    """Return what a traceparent says; None for one that says nothing, whoever wrote it."""
    parts = traceparent.split("-")
    if [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff" or (parts[0] == "00" and len(parts) > 4):
        return None
    try:
        numbers = [int(part, 16) for part in parts[1:4]]
    except ValueError:
        return None
    state = TraceState.from_header([tracestate]) if tracestate else None
    found = SpanContext(numbers[0], numbers[1], True, TraceFlags(numbers[2]), state)
    return found if found.is_valid else None


def _traceparent(own: SpanContext) -> str:
    return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"


def _links(traceparents: Sequence[str]) -> list[Link]:
    found = (_span_context(traceparent, "") for traceparent in traceparents)
    return [Link(span_context) for span_context in found if span_context is not None]


def _header_of_baggage(context: Context) -> str:
    if not (context and baggage.get_all(context)):
        return ""
    carrier: dict[str, str] = {}
    _BAGGAGE.inject(carrier, context)
    return carrier.get("baggage", "")


def _ns(unix_s: float) -> int:
    return int(unix_s * 1_000_000_000)
