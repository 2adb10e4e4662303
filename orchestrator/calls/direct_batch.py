"""Groups of calls for callers with a loop of their own: sent, waited for to the last one, never parked.

Knows no run: what it sends is stored nowhere but in its results.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from toolfleet.calls import Failed, Returned, Submitted, ToolResult, call_id
from toolfleet.catalog import of_tenant
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.orchestrator.calls.group import CallGroup
from toolfleet.orchestrator.calls.interception import intercept_each
from toolfleet.orchestrator.calls.outcome import NOTHING_YET
from toolfleet.orchestrator.calls.rollback import roll_back
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.options import BatchOptions
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.run.refusals import denied
from toolfleet.orchestrator.run.transcript import answered_ids, last_reply, tool_messages
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.tools.chain import Chain, Interceptors
from toolfleet.orchestrator.tools.offer import Tools, offered_to_caller
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace
from toolfleet.trusted import trusted

_own_record = trusted(CallRecord)


@dataclass(slots=True)
class DirectBatches:
    """Makes the calls of one assistant message at a time."""

    catalog: Catalog
    services: CallServices
    interceptors: Interceptors
    words: Words | None = None
    _served: Mapping[str, ToolSpec] | None = None
    _all_offered: Tools = field(default_factory=lambda: Tools.of({}))
    """What all that is served amounts to for a caller."""

    async def messages(
        self, message: AssistantMessage, history: Sequence[Message], options: BatchOptions
    ) -> list[ToolMessage]:
        """Make the calls; one ToolMessage for each that was made, in the message's order."""
        records, results = await self._execute(message, history, options)
        return list(tool_messages(records, results, self.words))

    async def results(
        self, message: AssistantMessage, history: Sequence[Message], options: BatchOptions
    ) -> list[Returned | Failed | Submitted]:
        """Make the calls; the result of each that was made, in the message's order."""
        records, results = await self._execute(message, history, options)
        return [results[record.call_id] for record in records]

    async def complete(self, messages: Sequence[Message], options: BatchOptions) -> tuple[Message, ...]:
        """Make the calls of a conversation's last reply that it does not answer; the conversation with all answers."""
        reply, answers = last_reply(messages)
        fresh = iter(await self.messages(reply, messages, options))
        asked = [answers.get(call.id) or next(fresh) for call in reply.tool_calls]
        return (*messages[: len(messages) - len(answers)], *asked)

    async def _execute(
        self, message: AssistantMessage, history: Sequence[Message], options: BatchOptions
    ) -> tuple[list[CallRecord], dict[str, ToolResult]]:
        """Make the calls of a message that history does not answer; their records, and their results by call id."""
        run_id = self.services.terms.settings.new_run_id()
        records = _records(run_id, message, answered_ids(message, history), options.get("approved", ()))
        spans = self.services.direct_spans()
        scope = await self._scope(run_id, message, history, options, None if spans is None else spans.trace)
        outcome = NOTHING_YET
        try:
            with CallGroup(self.services, records, scope, patient=True) as group:
                await group.send()
                outcome = await group.wait()
        finally:
            if spans is not None:
                spans.end(records, outcome.results, scope.offered)
        if options.get("compensate"):
            outcome = await roll_back(self.services, records, outcome, scope)
        self.services.forget(outcome.results)
        unapproved: dict[str, ToolResult] = {
            record.call_id: denied(record.tool, "it needs approval, and its id is not in `approved`")
            for record in records
            if record.call_id in group.awaiting_approval
        }
        told, raised = await intercept_each(records, unapproved, scope, self.services.terms.limits)
        if (error := outcome.raised or raised) is not None:
            raise error
        return records, {**outcome.results, **told}

    async def _scope(
        self,
        run_id: str,
        message: AssistantMessage,
        history: Sequence[Message],
        options: BatchOptions,
        trace: Trace | None,
    ) -> CallScope:
        timeout_s = options.get("timeout_s")
        chain = self.interceptors.chosen(())
        return CallScope(
            run_id=run_id,
            offered=await self._offered(chain, options.get("tools"), options.get("tenant", "")),
            emit=options.get("on_event"),
            interceptors=chain,
            context=dict(options.get("context") or {}),
            # As a tool of a run sees it: without the reply that asks for it.
            history=history[: history.index(message)] if message in history else history,
            deadline_unix_s=None if timeout_s is None else time.time() + timeout_s,
            priority=options.get("priority", Priority.NORMAL),
            tenant=options.get("tenant", ""),
            subject=options.get("subject", ""),
            trace=trace,
        )

    async def _offered(self, chain: Chain, names: Sequence[str] | None, tenant: str) -> Mapping[str, ToolSpec]:
        if chain or names is not None:
            return of_tenant(await offered_to_caller(self.catalog, chain, names), tenant)
        # Most callers take all tools for each of thousands of messages; the catalog changes when workers come and go.
        if (served := await self.catalog.offered()) is not self._served:
            self._all_offered = Tools.of(await offered_to_caller(self.catalog, chain, None))
            self._served = served
        return self._all_offered.of_tenant(tenant).specs


def _records(
    run_id: str, message: AssistantMessage, answered: Collection[str], approved: Collection[str]
) -> list[CallRecord]:
    """The calls that are to be made, each with an id by its place in the message."""
    return [
        _own_record(
            call_id=call_id(run_id, 1, position),
            turn=1,
            requested_id=request.id,
            tool=request.name,
            arguments=request.arguments,
            approval=Approval(granted=True) if request.id in approved else None,
        )
        for position, request in enumerate(message.tool_calls)
        if request.id not in answered
    ]
