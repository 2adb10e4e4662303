"""The spans of calls whose caller has a loop of their own, or none: below the caller's span, or one made for them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from toolfleet.calls import Failed, FailureKind, Submitted, ToolResult
from toolfleet.logs import FactLog
from toolfleet.masks import mask_arguments
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.spans.calls import call_span
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace
from toolfleet.tracing.ended import Ended
from toolfleet.tracing.trace import ids_of

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet.orchestrator")

NAME = "execute_tools"
"""The span around calls whose caller has none."""

_GOES_ON = Submitted()
_NOT_WAITED_FOR = Failed(kind=FailureKind.CANCELLED, message="nobody waits for it any more")


class DirectSpans:
    """The spans of a caller's calls that are made together."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._began_unix_s = time.time()
        here = tracing.here()
        self._is_first = here is None
        self.trace: Trace = here or tracing.begin_alone(NAME)

    def end(
        self,
        calls: Sequence[CallRecord],
        results: Mapping[str, ToolResult],
        offered: Mapping[str, ToolSpec],
        *,
        goes_on: Collection[str] = (),
    ) -> None:
        """Record the calls, with what each has come to: one without a result goes on by itself, or is nobody's."""
        if not self.trace.is_sampled:
            return
        try:
            self._end(calls, {**dict.fromkeys(goes_on, _GOES_ON), **results}, offered)
        except Exception:  # telemetry is no part of the call
            log.exception("calls_not_traced", calls=len(calls))

    def _end(
        self, calls: Sequence[CallRecord], results: Mapping[str, ToolResult], offered: Mapping[str, ToolSpec]
    ) -> None:
        now, shows = time.time(), self._tracing.shows_content
        for each in calls:
            call = _masked(each, offered) if shows else each
            result = results.get(call.call_id, _NOT_WAITED_FOR)
            self._tracing.record(call_span(self.trace, call, result, self._began_unix_s, now, shows_content=shows))
        if self._is_first:
            trace_id, span_id = ids_of(self.trace.traceparent)
            state = self.trace.tracestate
            self._tracing.record(
                Ended(NAME, "", {}, self._began_unix_s, now, span_id=span_id, trace_id=trace_id, tracestate=state)
            )


def _masked(call: CallRecord, offered: Mapping[str, ToolSpec]) -> CallRecord:
    spec = offered.get(call.tool)
    # Of a name that nobody has it is not known what is secret.
    shown = mask_arguments(call.arguments, spec.input_schema) if spec else ""
    return call.model_copy(update={"arguments": shown})
