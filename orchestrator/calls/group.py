"""The calls of one reply while they are under way: sent at once, gathered by call id, none lost for another.

The same column serves a run's turn and a caller who brings a loop of their own:

    with CallGroup(services, records, scope) as group:
        await group.send()
        outcome = await group.wait()

A call is expected before it is sent, and expected no longer once the `with` block is left, however it is left. Knows no
run: what is written down of a group, and when, is its user's to say.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Self

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.calls import Failed, FailureKind, Returned, Submitted, ToolCall, ToolResult
from toolfleet.orchestrator.calls.interception import (
    as_intercepted,
    intercept_calls,
    intercept_each,
    must_be_of_one_call,
)
from toolfleet.orchestrator.calls.outcome import GroupOutcome
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.calls.terms import is_like_others
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.fleet.barrier import Barrier
from toolfleet.orchestrator.fleet.dispatch import Outgoing
from toolfleet.orchestrator.run.approvals import changed_since
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.tool import ToolSpec
from toolfleet.trusted import changed

AT_ONCE: Final = 1000
"""Calls that are made before they are sent: workers begin while more are made. Fewer would be read in small parts."""

BACK_SOON_S: Final = 0.1
"""Calls that are back within that time need not be written down as sent first."""

AHEAD: Final = 2
"""So many of these parts may be on their way while another one is made."""


class CallGroup:
    """The calls that share a scope. `patient`: none of them counts as slow, however long it takes."""

    def __init__(
        self, services: CallServices, calls: Sequence[CallRecord], scope: CallScope, *, patient: bool = False
    ) -> None:
        """Decides who is asked about each call; sends nothing yet."""
        place = services.placement
        self._services = services
        self._scope = scope
        self._barrier = Barrier(scope.on_end, scope.on_news, patient=patient)
        elsewhere = [call for call in calls if place.is_for_others(call, scope)]
        brought = (
            [call for call in calls if place.is_for_interceptor(call, scope)] if scope.interceptors.brought else []
        )
        self.awaiting_approval = tuple(
            call.call_id for call in (*elsewhere, *brought) if place.awaits_approval(call, scope)
        )
        """The calls that a person has to decide about; they are neither sent nor waited for."""
        self._elsewhere = [call for call in elsewhere if call.call_id not in self.awaiting_approval]
        self._brought = [call for call in brought if call.call_id not in self.awaiting_approval]
        placed = {call.call_id for call in (*elsewhere, *brought)}
        self._here = [call for call in calls if call.call_id not in placed] if len(placed) < len(calls) else []
        self._arguments: dict[str, str] = {}
        self._intercepted: dict[str, Returned | Failed] = {}
        self._raised: Exception | None = None
        self._by_patience: defaultdict[float, list[str]] = defaultdict(list)
        self._made: dict[str, ToolCall] = {}
        """Of each tool a call that was made just now, and that others are like."""
        self._outgoing: list[Outgoing] = []
        self._may_be_sent: list[Outgoing] = []
        self._for_agents: list[ToolCall] = []
        self._sent_before: list[str] = []
        self._queued: list[asyncio.Future[bool]] = []
        self._sent_at_s = 0.0
        """When they were there, or had all been made, by the event loop's clock."""
        self.deadlines_unix_s: dict[str, float] = {}
        """Of the calls that were sent just now, by call id."""
        self.direct: list[str] = []
        """Those of them whose result is the run's answer."""
        self.agents: list[str] = []
        """Those of them that runs of agents answer."""
        self.background: list[str] = []
        """The calls, sent now or before, of which the model has asked for a handle at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Expect nothing of this group any more, see `give_up`."""
        self.give_up()

    # --- send ---------------------------------------------------------------------------------------------------

    async def send(self, *, may_be_sent: Collection[str] = ()) -> None:
        """Send the calls that were not sent before; expect those that were. Returns before they are in their queues.

        Of those that may have been sent, by whoever was lost before they wrote it down, the ones that have a result are
        not sent again. Raises StoreUnreachable.
        """
        self._arguments = await self._arguments_to_send()
        for record in self._elsewhere:
            if record.call_id not in self._intercepted:
                if len(self._outgoing) >= AT_ONCE or self._services.gatherer.is_full:
                    await self._send_what_is_ready()
                self._expect(record, self._arguments.get(record.call_id, record.arguments), may_be_sent)
        await self._send_those_without_result()
        self._dispatch()
        await self._start_agents()
        self._sent_at_s = asyncio.get_running_loop().time()
        if self._sent_before:
            # Their results may have been pushed to whoever waited for them before us.
            await self._services.gatherer.look_up(self._sent_before)

    async def reach_queues(self) -> bool:
        """Wait until the calls of this group are in their queues. False when any of them could not be sent."""
        are_there = all([await queued for queued in self._queued])
        self._sent_at_s = asyncio.get_running_loop().time()
        return are_there

    async def is_back_soon(self) -> bool:
        """Wait for a moment, where only workers are waited for; whether all of them have answered by then.

        Not where interceptors look at the results, which may take them any time. Nor for a tool whose result is the
        answer: a version that reads no sendings in `CallsBack` would take such a run for one that goes on.
        """
        others = self._here or self._brought or self.awaiting_approval or self.agents or self.background
        is_plain = not (others or self.direct or self._scope.interceptors)
        if not is_plain or min(self._by_patience, default=0.0) < BACK_SOON_S:  # none has any where all are patient
            return False
        return await self._barrier.is_complete_within(BACK_SOON_S)

    @property
    def queued_since_s(self) -> float:
        """For how many seconds its calls have been in their queues, to the millisecond."""
        return round(asyncio.get_running_loop().time() - self._sent_at_s, 3)

    async def _arguments_to_send(self) -> dict[str, str]:
        """What calls that are not sent yet are to be sent with, where that is not what their record shows."""
        fresh = [record for record in (*self._elsewhere, *self._brought) if record.deadline_unix_s is None]
        arguments = await self._services.vault.arguments(fresh)
        if not self._scope.interceptors:
            return arguments
        sending, self._intercepted, self._raised = await intercept_calls(fresh, self._scope, arguments, self._limits)
        # A person has approved these very arguments, and no others.
        self._intercepted |= changed_since(fresh, arguments, sending, self._limits)
        return sending

    async def _send_what_is_ready(self) -> None:
        """Let workers begin, and other tasks go on, before the rest is made. Returns when there is room for more."""
        # Before we wait for room, or nothing would ever make room.
        self._dispatch()
        await self._start_agents()
        self._made.clear()  # deadlines of later ones are later
        await asyncio.sleep(0)  # it leaves now
        if len(self._queued) > AHEAD:
            await self._queued[-1 - AHEAD]
        await self._services.gatherer.room()

    def _expect(self, record: CallRecord, arguments: str, may_be_sent: Collection[str]) -> None:
        spec = self._scope.offered.get(record.tool)
        call = self._tool_call(record, spec, arguments)
        # Expect before dispatch: a result that came first would find nobody waiting.
        self._services.gatherer.expect(call, self._barrier)
        if not self._barrier.is_patient:
            self._count_as_slow_later(call.call_id, record, spec, arguments)
        if record.deadline_unix_s is not None or spec is None:
            self._sent_before.append(call.call_id)
        else:
            self._make_ready(call, spec, self._may_be_sent if call.call_id in may_be_sent else self._outgoing)

    def _tool_call(self, record: CallRecord, spec: ToolSpec | None, arguments: str) -> ToolCall:
        """The call as its worker gets it. Of many for one tool all but the first are made in a third of the time."""
        scope, terms = self._scope, self._services.terms
        if spec is None or not is_like_others(record, spec, scope, arguments):
            return terms.tool_call(record, spec, scope, arguments)
        if (like := self._made.get(spec.name)) is not None:
            return changed(like, call_id=record.call_id, arguments=arguments)
        call = self._made[spec.name] = terms.tool_call(record, spec, scope, arguments)
        return call

    def _count_as_slow_later(self, call_id: str, record: CallRecord, spec: ToolSpec | None, arguments: str) -> None:
        if self._services.terms.is_in_background(record, spec, arguments):
            self.background.append(call_id)
            # At once: its result may be here before anybody waits.
            self._barrier.become_handles([call_id])
        else:
            self._by_patience[self._services.terms.patience_s(record, spec, self._scope)].append(call_id)

    def _make_ready(self, call: ToolCall, spec: ToolSpec, outgoing: list[Outgoing]) -> None:
        self.deadlines_unix_s[call.call_id] = call.deadline_unix_s
        if spec.return_direct:
            self.direct.append(call.call_id)
        self._scope.tell_start(call, spec)
        if self._services.placement.is_for_agent(call.tool, self._scope):
            self._for_agents.append(call)
            self.agents.append(call.call_id)
        else:
            outgoing.append(Outgoing(call, spec, self._scope.priority))

    async def _send_those_without_result(self) -> None:
        """Have the calls ready that may have been sent before, but for those whose results are stored."""
        if self._may_be_sent:
            may_be_sent, self._may_be_sent = self._may_be_sent, []
            await self._services.gatherer.look_up([each.call.call_id for each in may_be_sent])
            self._outgoing += [each for each in may_be_sent if each.call.call_id not in self._barrier.results]

    def _dispatch(self) -> None:
        """Send what is ready."""
        outgoing, self._outgoing = self._outgoing, []
        if outgoing:
            self._queued.append(self._services.dispatcher.send(outgoing))

    async def _start_agents(self) -> None:
        scope, agents = self._scope, self._services.placement.agents
        if scope.begin is None or scope.run is None:
            return
        begun, self._for_agents = self._for_agents, []
        for call in begun:
            refusal = await agents.start(call, begin=scope.begin, parent=scope.run)
            if refusal is not None:
                self._services.gatherer.end(call.call_id, refusal)

    # --- wait ---------------------------------------------------------------------------------------------------

    async def wait(self) -> GroupOutcome:
        """Wait until every call has a result, is slow, or awaits approval. Raises BrokerUnreachable.

        What a handler or an interceptor raises at one call is part of the outcome: the others run to their end.
        """
        fetched: dict[str, ToolResult] = {}
        timers = self._lose_patience_later() if self._barrier.open else ()
        try:
            # What is answered here is answered while workers are at the rest.
            said, raised_here = await self._answers_from_here(fetched) if self._here or self._brought else ({}, None)
            await self._barrier.wait()
        finally:
            for timer in timers:
                timer.cancel()
        known: dict[str, ToolResult] = {**self._barrier.results, **self._intercepted, **said}
        if not self._scope.interceptors:
            return GroupOutcome(known, fetched, frozenset(self._barrier.slow), self._raised or raised_here)
        calls = (*self._elsewhere, *self._here, *self._brought)
        results, raised = await intercept_each(calls, known, self._scope, self._limits)
        if self._scope.interceptors.hides_results:
            self._tell_ends(results)
        return GroupOutcome(results, fetched, frozenset(self._barrier.slow), self._raised or raised_here or raised)

    async def _answers_from_here(
        self, fetched: dict[str, ToolResult]
    ) -> tuple[dict[str, ToolResult], Exception | None]:
        """What this process has to say of the calls that are not sent, and what was raised first, if anything was."""
        here = await self._services.vault.unmasked(self._here)
        answers = await asyncio.gather(
            *(self._services.answers.answer(call, self._scope, fetched) for call in here),
            *(self._answer_of_interceptor(call) for call in self._brought),
            return_exceptions=True,
        )
        answered = zip((*self._here, *self._brought), answers, strict=True)
        said = {call.call_id: _said(call, answer) for call, answer in answered}
        return said, next((answer for answer in answers if isinstance(answer, Exception)), None)

    @property
    def _limits(self) -> ArgumentLimits:
        return self._services.terms.limits

    async def _answer_of_interceptor(self, record: CallRecord) -> Returned | Failed:
        """The answer of the interceptor that brought the tool, unless one before it had an answer already."""
        if (answered := self._intercepted.get(record.call_id)) is not None:
            return answered
        arguments = self._arguments.get(record.call_id, record.arguments)
        call = as_intercepted(record, self._scope, arguments)
        return await self._scope.interceptors.brought[record.tool].answer(call, self._limits)

    def _tell_ends(self, results: Mapping[str, ToolResult]) -> None:
        for record in self._elsewhere:
            if (result := results.get(record.call_id)) is not None and record.call_id in self._barrier.results:
                self._scope.tell_end(record.call_id, record.tool, result)

    def lose_patience(self, call_id: str) -> None:
        """Count this call as slow from now on."""
        self._barrier.lose_patience([call_id])

    def give_up(self) -> None:
        """Expect nothing of this group any more; what is still on its way goes on by itself."""
        self._services.gatherer.give_up(self._barrier.open)

    def _lose_patience_later(self) -> list[asyncio.TimerHandle]:
        """One timer for each length of patience in the group; none at all for calls that have none."""
        by_patience = self._by_patience
        if self._scope.slow == "handle":
            self._barrier.become_handles(by_patience.get(0.0, ()))
        self._barrier.lose_patience(by_patience.pop(0.0, ()))
        loop = asyncio.get_running_loop()
        return [
            loop.call_at(self._sent_at_s + patience_s, self._barrier.lose_patience, call_ids)
            for patience_s, call_ids in by_patience.items()
        ]


def _said(call: CallRecord, answer: Returned | Failed | Submitted | BaseException) -> ToolResult:
    """The answer to a call; of one whose handler raised, what there is to say. Raises what is not about one call."""
    if not isinstance(answer, BaseException):
        return answer
    must_be_of_one_call(answer)
    if isinstance(answer, UnknownTool):
        return Failed(kind=FailureKind.UNKNOWN_TOOL, message=str(answer))
    doubt = "what answers it may or may not have had its effect"
    said = f"{call.tool} could not be answered ({type(answer).__name__}: {answer}); {doubt}."
    return Failed(kind=FailureKind.ERROR, message=said)
