"""What a run does that has rested: look what is back of its slow calls, take that up, or rest on.

A run rests in one of two states. PARKED: its model waits for results, and is asked again once all of them are there.
WAITING: its model has answered without them; they are delivered together, exactly once, before the run may end.
Whichever it is, the calls are watched before the store is read, so that no result is missed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from toolfleet.calls import ToolResult
from toolfleet.logs import FactLog
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage
from toolfleet.orchestrator.calls.interception import intercept_each, intercept_late
from toolfleet.orchestrator.calls.outcome import masked_and_back
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.errors import HandleNotFound
from toolfleet.orchestrator.fleet.gather import DEADLINE_GRACE_S, never_came_back
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.run.events import CallRecord, CallsBack, SlowResultDelivered
from toolfleet.orchestrator.run.tally import handle_of_task
from toolfleet.orchestrator.run.transcript import in_own_words
from toolfleet.orchestrator.run.updates import CallEnded
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.status.handles import Handles, Status
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.builtin import TASK_RESULT
from toolfleet.points import Point, reached

log = FactLog("toolfleet.orchestrator")

KEEP_LATE_S: Final = 24 * 3600
"""How much longer than the last open call a result is kept that came before it."""


@dataclass(frozen=True, slots=True)
class Resting:
    """Takes up what resting runs wait for."""

    scopes: Scopes
    services: CallServices
    handles: Handles
    store: RunStore

    # --- parked: the model waits ----------------------------------------------------------------------------------

    async def collect(self, work: RunAtWork) -> bool:
        """Record what is back of the slow calls. Whether the run goes on; otherwise it is watched, and rests."""
        run = work.run
        under_way = {call.call_id: call for call in run.calls_owed if call.deadline_unix_s is not None}
        # Watch before reading: a result that landed between the two would be missed.
        self.services.gatherer.watch(run.run_id, under_way, until_unix_s=_next_look_unix_s(run))
        results = await self._stored_results(under_way)
        if not results:
            reached(Point.PARKED, run.run_id)
            return False
        self.services.gatherer.unwatch(run.run_id, under_way)
        scope = await self.scopes.for_late_results(run)
        results, raised = await intercept_each(under_way.values(), results, scope, self.services.terms.limits)
        if work.emit:
            for call_id, result in results.items():
                tool = under_way[call_id].tool
                now = time.time()
                work.emit(CallEnded(run_id=run.run_id, call_id=call_id, tool=tool, result=result, at_unix_s=now))
        back = partial(_back, results)
        await work.journal.append(back(run), again=back)
        self.services.forget(results)
        await self.services.vault.forget(masked_and_back(under_way.values(), results))
        if raised is not None:
            raise raised
        return True

    async def _stored_results(self, calls: Mapping[str, CallRecord]) -> dict[str, ToolResult]:
        """The results that are stored, and those of calls whose deadline has passed without one."""
        # What is not a worker's word is none: its call waits on for one, and expires without.
        results = await self.store.known_results(list(calls))
        for call_id, call in calls.items():
            if call_id not in results and time.time() > (call.deadline_unix_s or 0) + DEADLINE_GRACE_S:
                results[call_id] = never_came_back(call.tool)
        return results

    # --- waiting: the model has answered ----------------------------------------------------------------------------

    async def deliver(self, work: RunAtWork) -> bool:
        """Deliver the results that the model did not fetch. Whether the run goes on; otherwise it rests.

        Raises HandleNotFound when one of them is gone.
        """
        run = work.run
        open_calls = run.open_slow_calls
        ids = [call.call_id for call in open_calls]
        # Watch before reading, as above.
        self.services.gatherer.watch(run.run_id, ids, until_unix_s=_next_look_unix_s(run))
        tasks = run.tasks
        statuses = [await self.handles.status(handle_of_task(call), run.run_id, tasks=tasks) for call in open_calls]
        if not all(status.is_terminal for status in statuses):
            await self._keep_early_results(open_calls, statuses)
            return False
        self.services.gatherer.unwatch(run.run_id, ids)
        scope = await self.scopes.for_late_results(run)
        limits = self.services.terms.limits
        statuses = [
            await intercept_late(status, call, scope, limits) for call, status in zip(open_calls, statuses, strict=True)
        ]
        results = _results(open_calls, statuses)
        messages = [
            message
            for call, status in zip(open_calls, statuses, strict=True)
            for message in late_messages(call, status, run.terms.words)
        ]
        await work.journal.append(SlowResultDelivered(results=results, messages=tuple(messages)))
        self.services.forget(results)
        return True

    async def _keep_early_results(self, calls: Sequence[CallRecord], statuses: Sequence[Status]) -> None:
        """Keep what is back until the last of the calls is: results have a time to live of their own."""
        back = [call.call_id for call, status in zip(calls, statuses, strict=True) if status.is_terminal]
        await self.store.keep_results(back, max(call.deadline_unix_s or 0 for call in calls) + KEEP_LATE_S)


def _next_look_unix_s(run: Run) -> float | None:
    """When a resting run must be looked at although nothing has come back."""
    deadlines = [call.deadline_unix_s for call in run.calls_under_way if call.deadline_unix_s is not None]
    if run.awaiting_approval and run.deadline_unix_s is not None:
        deadlines.append(run.deadline_unix_s)
    return min(deadlines, default=None)


def _back(results: Mapping[str, ToolResult], run: Run) -> CallsBack:
    return CallsBack(results=dict(results), messages=run.messages_with(results))


def _results(calls: Sequence[CallRecord], statuses: Sequence[Status]) -> dict[str, ToolResult]:
    """The results of calls that have all ended, by call id. Raises HandleNotFound for one whose result is gone."""
    results: dict[str, ToolResult] = {}
    for call, status in zip(calls, statuses, strict=True):
        if status.result is None:
            raise HandleNotFound(f"task {handle_of_task(call)} of {call.tool} is gone: {status.message}")
        results[call.call_id] = status.result
    return results


def late_messages(call: CallRecord, status: Status, words: Words | None = None) -> list[Message]:
    """A late result as if the model had asked for it: the request that it did not make, and the answer."""
    if words is not None and status.result is not None:
        status = status.ended_with(in_own_words(words, call, status.result))
    fetch_id = f"{call.requested_id}-late"
    arguments = orjson.dumps({"task_id": status.task_id}).decode()
    return [
        AssistantMessage(tool_calls=(RequestedCall(id=fetch_id, name=TASK_RESULT, arguments=arguments),)),
        ToolMessage(tool_call_id=fetch_id, name=TASK_RESULT, content=status.for_model()),
    ]
