"""The spans of runs, made of their histories: whoever writes down an end records the span that has ended with it.

So a run has one `invoke_agent` span and each call one `execute_tool` span, however many orchestrators have worked on
it: ids and beginnings are in the history, and nothing has to be held open for days. Only a reply that is being written
has a span that is open. What goes wrong here is logged, and costs no run its life.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from toolfleet.calls import Failed, Returned, ToolResult, attempt_of
from toolfleet.logs import FactLog
from toolfleet.orchestrator.run.events import (
    CallRecord,
    CallsBack,
    CallsStreamed,
    RunEvent,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.limits import TIMED_OUT
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.spans.calls import call_span
from toolfleet.orchestrator.spans.chat import Chat
from toolfleet.orchestrator.spans.content import messages_as_json
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace
from toolfleet.tracing.conventions import (
    AGENT,
    CONVERSATION,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    OPERATION,
    ORCHESTRATOR,
    OUTCOME,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    REQUEST_MODEL,
    RUN,
    TENANT,
)
from toolfleet.tracing.ended import Ended
from toolfleet.tracing.trace import ids_of

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet.orchestrator")

MOST_SENT: Final = 100_000
"""Calls of which it is known here when they were sent; of others their worker's word counts."""


class RunSpans:
    """Records the spans of the runs that one orchestrator begins, works on or ends."""

    def __init__(self, tracing: Tracing, orchestrator_id: str) -> None:
        self.tracing = tracing
        self._orchestrator_id = orchestrator_id
        self._sent_unix_s: OrderedDict[str, float] = OrderedDict()

    # --- beginnings -----------------------------------------------------------------------------------------------

    def begun(self, started: RunStarted) -> RunStarted:
        """Return a run's first event with its span, below the one that its caller is in."""
        attributes = _attributes(started.run_id, started.model, conversation_of(started))
        return started.model_copy(update={"trace": self.tracing.begin("invoke_agent", attributes)})

    def begun_below(self, started: RunStarted, call: Trace) -> Trace:
        """Return the span of an agent's run, below that of the call which it answers."""
        attributes = _attributes(started.run_id, started.model, conversation_of(started)) | {AGENT: call.agent}
        trace = self.tracing.begin(f"invoke_agent {call.agent}", attributes, parent=call)
        return trace.model_copy(update={"agent": call.agent})

    def resumed(self, run: Run) -> Trace:
        """Return the span that a run has once it goes on: below what it was, and linked to it and to its caller."""
        earlier, caller = run.trace, self.tracing.current()
        links = [link for link in (earlier and earlier.traceparent, caller) if link]
        attributes = _attributes(run.run_id, run.model, conversation_of(run))
        trace = self.tracing.begin("invoke_agent", attributes, links=links, parent=earlier)
        return trace.model_copy(update={"since_unix_s": time.time(), "agent": earlier.agent if earlier else ""})

    def adopted(self, run: Run) -> None:
        """Record that this orchestrator goes on with a run that another one had."""
        if run.trace is not None and run.trace.is_sampled:
            now, own = time.time(), run.trace.traceparent
            attributes = {RUN: run.run_id, ORCHESTRATOR: self._orchestrator_id}
            links, state = (own,), run.trace.tracestate
            self.tracing.record(Ended("adopt_run", own, attributes, now, now, links=links, tracestate=state))

    # --- what is written down -------------------------------------------------------------------------------------

    def tell(self, run: Run, event: RunEvent) -> None:
        """Record what has ended with an event that was written down just now; `run` is what it has led to."""
        if run.trace is None or not run.trace.is_sampled:
            return
        try:
            self._tell(run, run.trace, event)
        except Exception:  # telemetry is no part of the run
            log.exception("run_not_traced", run_id=run.run_id)

    def _tell(self, run: Run, trace: Trace, event: RunEvent) -> None:
        match event:
            case CallsStreamed():
                self.note_sending(run, event.sending)
            case CallsBack():
                self._end_calls(run, trace, {**event.results, **event.fetched})
            case SlowResultDelivered():
                self._end_calls(run, trace, event.results)
            case RunStopped():
                self._end_calls(run, trace, event.results)
                self._end_calls(run, trace, _left_open(run))
        if run.state.is_terminal:
            self._end_run(run, trace)

    def note_sending(self, run: Run, call_ids: Collection[str]) -> None:
        """Note that calls are about to be sent: with that their spans begin."""
        if run.trace is None or not run.trace.is_sampled:
            return
        now = time.time()
        self._sent_unix_s.update(dict.fromkeys(call_ids, now))
        while len(self._sent_unix_s) > MOST_SENT:
            self._sent_unix_s.popitem(last=False)

    def _end_calls(self, run: Run, trace: Trace, results: Mapping[str, ToolResult]) -> None:
        ended = {call_id: result for call_id, result in results.items() if isinstance(result, Returned | Failed)}
        for call in _calls_of(run, ended):
            self._end_call(run, trace, call, ended[call.call_id])

    def _end_call(self, run: Run, trace: Trace, call: CallRecord, result: Returned | Failed) -> None:
        now, attempt = time.time(), attempt_of(result)
        began = self._sent_unix_s.pop(call.call_id, attempt.began_unix_s if attempt else now)
        span = call_span(trace, call, result, began, now, shows_content=self.tracing.shows_content)
        about = {CONVERSATION: conversation_of(run), **({AGENT: trace.agent} if trace.agent else {})}
        self.tracing.record(span._replace(attributes={**span.attributes, **about}))

    def _end_run(self, run: Run, trace: Trace) -> None:
        trace_id, span_id = ids_of(trace.traceparent)
        attributes = _attributes(run.run_id, run.model, conversation_of(run)) | {
            INPUT_TOKENS: run.usage.input_tokens,
            OUTPUT_TOKENS: run.usage.output_tokens,
            OUTCOME: run.state.value,
        }
        if trace.agent:
            attributes[AGENT] = trace.agent
        if run.terms.tenant:
            attributes[TENANT] = run.terms.tenant
        if self.tracing.shows_content:
            attributes[INPUT_MESSAGES] = messages_as_json(run.messages[: run.began_with])
            attributes[OUTPUT_MESSAGES] = messages_as_json(run.messages[-1:])
        self.tracing.record(
            Ended(
                f"invoke_agent {trace.agent}".strip(),
                trace.parent,
                attributes,
                trace.since_unix_s or run.started_unix_s,
                time.time(),
                span_id=span_id,
                trace_id=trace_id,
                error_type=_error_of(run),
                links=trace.links,
                tracestate=trace.tracestate,
            )
        )

    # --- replies --------------------------------------------------------------------------------------------------

    def chat(self, run: Run, provider: str, model: str, offered: Mapping[str, ToolSpec]) -> Chat:
        """Return the span of one reply, to be entered while it is heard; nothing else is carried into its request."""
        return Chat(self.tracing, run, provider, model, offered=offered, conversation=conversation_of(run))


def conversation_of(run: Run | RunStarted) -> str:
    """Return the id of the conversation that a run belongs to: its caller's, or its own."""
    return str(run.terms.context.get("conversation_id") or run.run_id)


def _attributes(run_id: str, model: str, conversation: str) -> dict[str, str | int]:
    return {OPERATION: "invoke_agent", REQUEST_MODEL: model, CONVERSATION: conversation, RUN: run_id}


def _calls_of(run: Run, call_ids: Collection[str]) -> list[CallRecord]:
    """Return these calls of a run. From the newest on: most are of its last turn."""
    found: list[CallRecord] = []
    for call in reversed(run.calls):
        if len(found) == len(call_ids):
            break
        if call.call_id in call_ids:
            found.append(call)
    return found


def _left_open(run: Run) -> dict[str, ToolResult]:
    """Return what a run was told of the calls that somebody may still work on at its end."""
    return {call.call_id: call.result for call in run.calls if call.is_left_open and call.result is not None}


def _error_of(run: Run) -> str:
    if run.state is not State.FAILED:
        return ""
    if run.fault is not None:
        return run.fault.kind.value
    if run.reason == TIMED_OUT:
        return "timed_out"
    return "limit" if run.over_limit else "_OTHER"
