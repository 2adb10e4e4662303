"""Batches of calls for callers with a loop of their own: sent, waited for to the last one, never parked.

Knows no run: what it sends is stored nowhere but in its results.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from toolfleet.calls import Failed, Returned, Submitted, call_id
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.calls.group import Batch, Calls
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.options import BatchOptions
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.run.refusals import denied
from toolfleet.orchestrator.run.transcript import answered_ids
from toolfleet.orchestrator.tools.interceptors import Interceptors
from toolfleet.streams import Priority


class Batches:
    """Performs the calls of one assistant message at a time."""

    def __init__(self, catalog: Catalog, calls: Calls, interceptors: Interceptors) -> None:
        self._catalog = catalog
        self._calls = calls
        self._interceptors = interceptors

    async def execute(
        self, message: AssistantMessage, history: Sequence[Message], options: BatchOptions
    ) -> tuple[list[CallRecord], dict[str, Returned | Failed | Submitted]]:
        """The calls that were made, in the message's order, and their results by call id."""
        run_id = secrets.token_hex(8)
        answered = answered_ids(message, history)
        timeout_s, approved = options.get("timeout_s"), options.get("approved", ())
        records = [
            CallRecord(
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
        batch = Batch(
            run_id=run_id,
            offered=await self._catalog.choose(options.get("tools")),
            emit=options.get("on_event"),
            interceptors=self._interceptors.chosen(()),
            context=dict(options.get("context") or {}),
            history=history[: history.index(message)] if message in history else history,
            deadline_unix_s=None if timeout_s is None else time.time() + timeout_s,
            priority=options.get("priority", Priority.NORMAL),
        )
        sending = await self._calls.send(records, batch, patient=True)
        try:
            gathered = await self._calls.gather(sending)
        finally:
            self._calls.give_up(sending)
        results = gathered.results
        if options.get("compensate"):
            results = await self._calls.compensated(records, results, batch)
        self._calls.recorded(results)
        unapproved = {
            record.call_id: denied(record.tool, "it needs approval, and its id is not in `approved`")
            for record in records
            if record.call_id in sending.awaiting_approval
        }
        return records, results | unapproved
