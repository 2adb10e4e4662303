"""The calls of one reply, as a column: send, record, wait, roll back, record, rest.

Every line acts; what an outcome means for the run is decided in `calls/outcome.py`. A run that was interrupted in the
midst goes through the same lines again: what was sent is only waited for, what was recorded is not owed any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from toolfleet.calls import Submitted
from toolfleet.orchestrator.calls.group import CallGroup
from toolfleet.orchestrator.calls.outcome import (
    NOTHING_YET,
    GroupOutcome,
    given_to_model,
    how_it_rests,
    masked_and_back,
    portions,
    what_came_back,
    what_was_sent,
)
from toolfleet.orchestrator.calls.rollback import roll_back
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.loop.above import tell_above
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.run.events import CallRecord, CallsSent
from toolfleet.orchestrator.run.updates import CallSubmitted
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.status.handles import Handles
from toolfleet.points import Point, reached
from toolfleet.trusted import changed


@dataclass(frozen=True, slots=True)
class Calling:
    """Makes the calls that models ask for."""

    scopes: Scopes
    services: CallServices
    handles: Handles
    spans: RunSpans | None = None

    async def call(self, work: RunAtWork) -> None:
        """Make the calls of the last reply, and wait for them as long as their patience lasts.

        Raises BrokerUnreachable, StoreUnreachable, UnknownTool, and what a handler or an interceptor raises: that only
        once the other calls are back and written down.
        """
        scope = await self.scopes.for_calls(work)
        owed = [call for call in work.run.calls_owed if not work.run.is_callers(call)]
        if self.spans is not None:
            self.spans.note_sending(work.run, [call.call_id for call in owed if call.deadline_unix_s is None])
        outcome = NOTHING_YET
        for portion in portions(owed, work.run.terms.calls_at_a_time):
            if outcome.raised is not None:
                break
            outcome = outcome.joined(await self._make(work, portion, scope))
        reached(Point.GATHERED, work.run.run_id)
        if work.run.terms.compensate:
            outcome = await roll_back(self.services, owed, outcome, scope)
        handed_out = await self._hand_out(work, outcome.slow, scope)
        await self._record_outcome(work, outcome, handed_out)
        work.may_be_sent.clear()
        if outcome.raised is not None:
            raise outcome.raised
        if rest := how_it_rests(work.run, handed_out):
            await work.journal.append(rest)

    async def _make(self, work: RunAtWork, calls: Sequence[CallRecord], scope: CallScope) -> GroupOutcome:
        """Send calls together, and wait for them."""
        terms = work.run.terms
        patient = terms.compensate or terms.calls_at_a_time is not None
        with CallGroup(self.services, calls, scope, patient=patient) as group:
            await group.send(may_be_sent=work.may_be_sent)
            work.may_be_sent.update(group.deadlines_unix_s)
            sent = what_was_sent(
                work.run,
                group.deadlines_unix_s,
                group.direct,
                group.awaiting_approval,
                agents=group.agents,
                background=[call_id for call_id in group.background if call_id in group.deadlines_unix_s],
            )
            unrecorded = None if sent is None else await self._record_unless_back_soon(work, sent, group, scope)
            if work.run.parent_call_id is not None:
                # Also where it was recorded before: who did so may have been lost before they were told.
                await tell_above(work.journal.store, work.run, work.run.awaiting_approval)
            outcome = await group.wait()
        return outcome if unrecorded is None else replace(outcome, sent=unrecorded)

    async def _record_unless_back_soon(
        self, work: RunAtWork, sent: CallsSent, group: CallGroup, scope: CallScope
    ) -> CallsSent | None:
        """Write down what was sent: an orchestrator that takes over waits for these calls, and sends them no more.

        Of calls that are back at once, that is returned, to be written down with their results: one write less. Who
        takes over in between finds the results, as those of calls of which this could not be written down.
        """
        # Calls that could not be sent are not written down as sent; `wait` raises what has stopped them.
        if not await group.reach_queues():
            return None
        reached(Point.DISPATCHED, work.run.run_id)
        is_back = await group.is_back_soon()
        if held_s := group.queued_since_s:
            sent = changed(sent, held_s=held_s)
        if is_back:
            return sent
        run = await work.journal.append(sent)
        # Now, not before: whoever hears of it may decide at once.
        undecided = set(sent.awaiting_approval)
        for call in run.awaiting_approval if undecided else ():
            if call.call_id in undecided:
                scope.tell_waiting(call)
        return None

    async def _record_outcome(self, work: RunAtWork, outcome: GroupOutcome, handed_out: dict[str, Submitted]) -> None:
        run = work.run
        if given := given_to_model(run, handed_out):
            # Watch before it is written down: a result that landed between the two would wake nobody.
            self.services.gatherer.watch(run.run_id, given)
        back = what_came_back(run, outcome, handed_out)
        if back is None:
            return
        # Made anew where others have written: what the model reads depends on whether the user has interrupted.
        await work.journal.append(back, again=lambda run: what_came_back(run, outcome, handed_out) or back)
        # Only what is written down may be dropped: until then Redis has the only copy.
        self.services.forget({**outcome.results, **outcome.fetched})
        await self.services.vault.forget(masked_and_back(run.calls_owed, back.results))

    async def _hand_out(self, work: RunAtWork, call_ids: Collection[str], scope: CallScope) -> dict[str, Submitted]:
        """Give each slow call a handle, the one it has or a new one."""
        if not call_ids:
            return {}
        run, by_id = work.run, {call.call_id: call for call in work.run.calls_owed}
        handed_out = {}
        for call_id in call_ids:
            call = by_id[call_id]
            spec = scope.offered.get(call.tool)
            submitted = await self.handles.submit(
                call,
                run.run_id,
                queue=spec.queue if spec else "",
                priority=scope.priority,
                principal=run.terms.tenant,
                subject=run.terms.subject,
            )
            handed_out[call_id] = submitted
            if scope.emit and not call.handle:
                scope.emit(CallSubmitted(run_id=run.run_id, call_id=call_id, tool=call.tool, handle=submitted.handle))
        return handed_out
