"""One call for a caller without a model: its result, or a handle when patience ends, and what may be asked with that.

Each call is the only one of a run of its own that is not stored; whoever has its handle may ask. Knows no turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolfleet.calls import Failed, Returned, Submitted, call_id, run_of
from toolfleet.catalog import of_tenant
from toolfleet.masks import mask_arguments
from toolfleet.orchestrator.calls.direct_cancel import note_request
from toolfleet.orchestrator.calls.group import CallGroup
from toolfleet.orchestrator.calls.late_results import LateResults
from toolfleet.orchestrator.calls.outcome import NOTHING_YET
from toolfleet.orchestrator.calls.scope import CallScope, Emit
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.errors import ApprovalMissing, HandleNotFound, UnknownTool
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.updates import CallAsks, RunUpdate
from toolfleet.orchestrator.status.call_reader import HandleRecord, SingleCall
from toolfleet.orchestrator.status.handles import Handles, Status
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.builtin import BuiltIn
from toolfleet.orchestrator.tools.chain import Chain, Interceptors
from toolfleet.orchestrator.tools.offer import offered_to_caller
from toolfleet.strict_json import written
from toolfleet.tool import ToolSpec


@dataclass(slots=True)
class Asking:
    """Ends the patience of a call that asks a person: that takes as long as people take."""

    on_event: Emit | None
    end_patience: Callable[[str], None] | None = None

    def hear(self, event: RunUpdate) -> None:
        """Take note of what happens to the call, and pass it on."""
        if self.on_event is not None:
            self.on_event(event)
        if isinstance(event, CallAsks) and self.end_patience is not None:
            self.end_patience(event.call_id)


@dataclass(frozen=True, slots=True)
class DirectCalls:
    """Makes single calls, and answers about those that became tasks."""

    catalog: Catalog
    services: CallServices
    handles: Handles
    built_in: BuiltIn
    interceptors: Interceptors
    late_results: LateResults
    store: RunStore

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        patience_s: float | None,
        context: Mapping[str, Any] | None,
        timeout_s: float | None,
        on_event: Emit | None = None,
        tenant: str = "",
        subject: str = "",
        handle_if_asks: bool = False,
        approved: bool = True,
    ) -> Returned | Failed | Submitted:
        """The call's result or, once its patience is used up, its handle. See Orchestrator.call."""
        if patience_s is not None or timeout_s is not None:
            RunTerms.of({"patience_s": patience_s, "timeout_s": timeout_s})
        record = _record(self.services.terms.settings.new_run_id(), tool, arguments, approved=approved)
        chain = self.interceptors.chosen(())
        spans = self.services.direct_spans()
        asking = Asking(on_event) if handle_if_asks else None
        scope = CallScope(
            run_id=run_of(record.call_id),
            offered=await self._offered(chain, tool, tenant),
            emit=on_event if asking is None else asking.hear,
            patience_s=patience_s,
            context=dict(context or {}),
            deadline_unix_s=None if timeout_s is None else time.time() + timeout_s,
            interceptors=chain,
            tenant=tenant,
            subject=subject,
            trace=None if spans is None else spans.trace,
        )
        outcome = NOTHING_YET
        try:
            with CallGroup(self.services, [record], scope) as group:
                if group.awaiting_approval:  # by the spec that it would be made with, whoever has looked before
                    raise ApprovalMissing(f"{tool} needs approval, which its caller may not give")
                if asking is not None:
                    asking.end_patience = group.lose_patience
                await group.send()
                outcome = await group.wait()
        finally:
            if spans is not None:
                spans.end([record], outcome.results, scope.offered, goes_on=outcome.slow)
        self.services.forget(outcome.results)
        if outcome.raised is not None:
            raise outcome.raised
        if not outcome.slow:
            return outcome.results[record.call_id]
        sent = record.model_copy(update={"deadline_unix_s": group.deadlines_unix_s[record.call_id]})
        spec = scope.offered[tool]
        return await self.handles.submit(
            sent,
            scope.run_id,
            queue=spec.queue,
            priority=scope.priority,
            principal=tenant,
            subject=subject,
            asked=_asked(record, spec, scope) if chain else None,
        )

    async def _offered(self, chain: Chain, tool: str, tenant: str) -> Mapping[str, ToolSpec]:
        """What a tenant may call when it asks for this tool. Raises UnknownTool for one of another tenant's."""
        offered = of_tenant(await offered_to_caller(self.catalog, chain, [tool]), tenant)
        if tool not in offered:
            raise UnknownTool(f"no live worker serves {tool}")
        return offered

    async def status(self, handle: str, *, wait_s: float, tenant: str | None = None) -> Status:
        """How the handle's call stands, after waiting for its result. Raises HandleNotFound."""
        record = await self._record_of(handle, tenant)
        return await self.late_results.shown(await self.handles.status(handle, record.run_id, wait_s=wait_s), record)

    async def cancel(self, handle: str, *, tenant: str | None = None, by: str = "") -> Status:
        """Cancel the handle's call; how it has ended. Raises HandleNotFound."""
        record = await self._record_of(handle, tenant)
        if not (await self.handles.status(handle, record.run_id)).is_terminal:
            await note_request(self.store, record.call_id, by)
        [status] = await self.built_in.cancel([handle], record.run_id)
        return await self.late_results.shown(status, record)

    async def _record_of(self, handle: str, tenant: str | None) -> HandleRecord:
        record = await self.handles.record(handle)
        if record is None or tenant not in {None, record.principal}:
            raise HandleNotFound(
                "no task has this handle: it is wrong, or its call ended longer ago than results are kept"
            )
        return record


def _asked(record: CallRecord, spec: ToolSpec, scope: CallScope) -> SingleCall:
    return SingleCall(arguments=mask_arguments(record.arguments, spec.input_schema), context=dict(scope.context))


def _record(run_id: str, tool: str, arguments: Mapping[str, Any] | str, *, approved: bool) -> CallRecord:
    return CallRecord(
        call_id=call_id(run_id, 1, 0),
        turn=1,
        requested_id="",
        tool=tool,
        arguments=arguments if isinstance(arguments, str) else written(dict(arguments)),
        # Whoever asks for a single call, and may, is the person whose approval a model's call would wait for.
        approval=Approval(granted=True) if approved else None,
    )
