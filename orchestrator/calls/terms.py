"""The terms on which a call is sent: its deadline, its patience, and what goes with it. Reads the clock, no more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.background import ARGUMENT, is_asked_for
from toolfleet.calls import ToolCall
from toolfleet.context import HISTORY
from toolfleet.extra_arguments import taken_out
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec
from toolfleet.trusted import trusted

_own_call = trusted(ToolCall)


@dataclass(frozen=True, slots=True)
class CallTerms:
    """Makes what is sent of what was asked for."""

    settings: Settings
    orchestrator_id: str
    agents: Agents

    @property
    def limits(self) -> ArgumentLimits:
        """What is taken from a model."""
        return self.settings.argument_limits

    def tool_call(self, record: CallRecord, spec: ToolSpec | None, scope: CallScope, arguments: str) -> ToolCall:
        """The call as its worker gets it. Without a spec only what was sent before can be waited for."""
        # What a caller has given with the call, or an interceptor has made of its arguments, is not our own.
        says_nothing = scope.tenant == scope.subject == "" and not (scope.context or scope.values)
        trace = scope.trace
        in_background = False
        if spec is not None and (extra := _extra_arguments(spec, scope)):
            # Before it is signed: no worker in any language has to know of those arguments.
            arguments, taken = taken_out(spec.name, arguments, extra, self.limits)
            in_background = is_asked_for(taken)
        return (_own_call if says_nothing and arguments is record.arguments else ToolCall)(
            call_id=record.call_id,
            run_id=scope.run_id,
            tool=spec.name if spec else record.tool,
            arguments=arguments,
            # A call that was sent keeps its deadline, whoever waits for it now.
            deadline_unix_s=record.deadline_unix_s or self._deadline_unix_s(spec, scope, in_background=in_background),
            reply_to=self.orchestrator_id,
            context=_context(spec, scope),
            state=dict(scope.values),
            traceparent=None if trace is None else trace.of_call(record.call_id),
            tracestate="" if trace is None else trace.tracestate,
            baggage="" if trace is None else trace.baggage,
            tenant=scope.tenant,
            subject=scope.subject,
            version=spec.version if spec else 0,
        )

    def is_in_background(self, record: CallRecord, spec: ToolSpec | None, arguments: str) -> bool:
        """Whether the model has asked for a handle at once; of a call that was sent before, whether it had then."""
        if record.deadline_unix_s is not None or spec is None or spec.background is None:
            return record.is_in_background
        return is_asked_for(taken_out(spec.name, arguments, (ARGUMENT,), self.limits)[1])

    def patience_s(self, record: CallRecord, spec: ToolSpec | None, scope: CallScope) -> float:
        """How long the call may take before it counts as slow: as its caller, its tool or the settings say."""
        if record.handle or (spec and spec.long_running):
            return 0.0
        asked = (scope.patience_s, spec.patience_s if spec else None, self.settings.patience_s)
        return next(patience_s for patience_s in asked if patience_s is not None)

    def _deadline_unix_s(self, spec: ToolSpec | None, scope: CallScope, *, in_background: bool) -> float:
        # An agent takes turns of its own, and each of them may make calls.
        is_long = in_background or (spec is not None and (spec.long_running or spec.name in self.agents))
        timeout_s = self.settings.long_call_timeout_s if is_long else self.settings.call_timeout_s
        deadline_unix_s = time.time() + max(timeout_s, (spec and spec.timeout_s) or 0)
        return min(deadline_unix_s, scope.deadline_unix_s or deadline_unix_s)


def is_like_others(record: CallRecord, spec: ToolSpec, scope: CallScope, arguments: str) -> bool:
    """Whether a call differs from others of its tool and scope, made at this moment, in its id and arguments only."""
    is_sent_anew = record.deadline_unix_s is None and arguments is record.arguments
    is_traced_apart = scope.trace is not None and scope.trace.is_sampled
    return is_sent_anew and not is_traced_apart and spec.background is None and not scope.interceptors.adding


def _extra_arguments(spec: ToolSpec, scope: CallScope) -> tuple[str, ...]:
    """The arguments that the model was asked for and the tool does not get."""
    own = () if spec.background is None else (ARGUMENT,)
    return (*own, *scope.interceptors.extra_arguments(spec)) if scope.interceptors.adding else own


def _context(spec: ToolSpec | None, scope: CallScope) -> dict[str, Any]:
    """What goes with a call: the caller's own, and the conversation for a tool that wants it."""
    if spec is None or not spec.wants_history:
        return dict(scope.context)
    return {**scope.context, HISTORY: [message.model_dump(mode="json") for message in scope.history]}
