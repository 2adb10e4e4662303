"""The span of one call as its caller sees it: from the moment when it was sent until its result was there. Pure."""

from __future__ import annotations

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.tracing import Trace
from toolfleet.tracing.conventions import (
    ARGUMENTS,
    CALL,
    OPERATION,
    OUTCOME,
    RESULT,
    RUN,
    TOOL,
    TOOL_CALL_ID,
    TOOL_TYPE,
    TURN,
    outcome_of,
)
from toolfleet.tracing.ended import Ended
from toolfleet.tracing.trace import span_of_call


def call_span(
    trace: Trace,
    call: CallRecord,
    result: Returned | Failed | Submitted,
    began_unix_s: float,
    ended_unix_s: float,
    *,
    shows_content: bool,
) -> Ended:
    """Return the `execute_tool` span of a call below `trace`. Secrets are masked in its record already."""
    outcome, error_type = outcome_of(result)
    attributes: dict[str, str | int] = {
        OPERATION: "execute_tool",
        TOOL: call.tool,
        TOOL_TYPE: "function",
        TOOL_CALL_ID: call.requested_id or call.call_id,
        RUN: call.call_id.rsplit(".", 2)[0],
        CALL: call.call_id,
        TURN: call.turn,
        OUTCOME: outcome,
    }
    if shows_content:
        attributes[ARGUMENTS] = call.arguments
        attributes[RESULT] = result.content if isinstance(result, Returned) else result.message
    return Ended(
        f"execute_tool {call.tool}",
        trace.traceparent,
        attributes,
        began_unix_s,
        ended_unix_s,
        span_id=span_of_call(call.call_id),
        error_type=error_type,
        tracestate=trace.tracestate,
    )
