"""Who is asked about a call: a worker, an agent, a person first, or only this orchestrator. Decides, sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.errors import BadArguments
from toolfleet.orchestrator.calls.interception import as_intercepted
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.interceptors import RequestedToolCall


@dataclass(frozen=True, slots=True)
class Placement:
    """Places the calls of one orchestrator."""

    agents: Agents
    limits: ArgumentLimits
    needs_approval: Callable[[RequestedToolCall], bool] | None = None
    """Asks for a person's approval of calls whose tools do not."""

    def is_for_others(self, call: CallRecord, scope: CallScope) -> bool:
        """Whether a worker or an agent is to be asked, or was; the rest is answered here."""
        if call.deadline_unix_s is not None:
            return True  # whether or not a worker with its tool is there just now
        spec = scope.offered.get(call.tool)
        return call.refusal is None and spec is not None and (spec.queue != OWN_QUEUE or call.tool in self.agents)

    def is_for_interceptor(self, call: CallRecord, scope: CallScope) -> bool:
        """Whether an interceptor has brought the tool, and answers."""
        return call.refusal is None and call.tool in scope.interceptors.brought and call.tool in scope.offered

    def is_for_agent(self, tool: str, scope: CallScope) -> bool:
        """Whether an agent is asked instead of a worker."""
        return scope.begin is not None and tool in self.agents

    def awaits_approval(self, call: CallRecord, scope: CallScope) -> bool:
        """Whether a person has to decide about a call for others, or for an interceptor, before it is made."""
        if call.deadline_unix_s is not None or call.approval is not None:
            return False
        if scope.offered[call.tool].requires_approval:
            return True
        if self.needs_approval is None:
            return False
        try:
            text = readable(call.tool, call.arguments, self.limits)
        except BadArguments:
            return False  # nothing of it will run
        return self.needs_approval(as_intercepted(call, scope, text))

    def may_go_early(self, call: CallRecord, scope: CallScope) -> bool:
        """Whether a call may be sent before the model has written the rest of its reply."""
        return (
            not scope.interceptors
            and not call.is_masked
            and call.tool not in self.agents
            and self.is_for_others(call, scope)
            and not self.awaits_approval(call, scope)
            # A long job gains nothing by a moment; the model is to get a handle, not by chance a result.
            and not scope.offered[call.tool].long_running
            and scope.offered[call.tool].background is None
        )
