"""A batch of requested calls to a batch of results: dispatched at once, gathered by call id, none lost for another.

The same column serves a run's turn and a caller who brings a loop of their own. Each call ends in one of three ways
here: with a result, as slow (its patience is used up and it goes on by itself), or waiting for a person's approval.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toolfleet.calls import Failed, Progress, Returned, Submitted, ToolCall, ToolResult, undo_id
from toolfleet.context import HISTORY
from toolfleet.errors import UnknownTool
from toolfleet.masks import mask_arguments
from toolfleet.messages import Message
from toolfleet.orchestrator.fleet.dispatch import Dispatcher, Outgoing
from toolfleet.orchestrator.fleet.gather import Barrier, Gatherer
from toolfleet.orchestrator.run.compensation import taken_back, to_take_back
from toolfleet.orchestrator.run.events import CallRecord, Slow
from toolfleet.orchestrator.run.refusals import unknown_tool
from toolfleet.orchestrator.run.updates import CallAwaitsApproval, CallEnded, CallProgressed, CallStarted, RunUpdate
from toolfleet.orchestrator.status.handles import OWN_QUEUE, Tasks
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.builtin import BUILT_IN, BuiltIn
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, after_all, before_all, owner_of
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec

Emit = Callable[[RunUpdate], None]

OnUnknownTool = Literal["tell", "raise"] | Callable[[CallRecord], Awaitable[Returned | Failed]]
"""What becomes of a call of a tool that nobody offered: the model is told, the run fails, or your own answer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of calls shares."""

    run_id: str
    offered: Mapping[str, ToolSpec]
    emit: Emit | None = None
    """None: nobody looks, and no event is made."""
    slow: Slow = "wait"
    patience_s: float | None = None
    """How long its calls may take before they count as slow; None: what each tool says."""
    context: Mapping[str, Any] = field(default_factory=dict)
    deadline_unix_s: float | None = None
    interceptors: Sequence[Interceptor] = ()
    search: Callable[[str], Awaitable[Returned | Failed]] | None = None
    """Answers a call of `search_tools`."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the run's tools share."""
    history: Sequence[Message] = ()
    """The conversation so far, for tools that want it."""
    depth: int = 0
    """How many runs stand above this one."""
    tenant: str = ""
    """Whose calls they are."""
    priority: Priority = Priority.NORMAL
    tasks: Tasks = field(default_factory=dict)
    """The run's earlier calls that became tasks, for the built-in tools."""

    def tell_start(self, call: ToolCall, spec: ToolSpec) -> None:
        """A call is on its way. Whoever looks sees no secrets."""
        if self.emit:
            self.emit(
                CallStarted(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=mask_arguments(call.arguments, spec.input_schema),
                    long_running=spec.long_running,
                )
            )

    def tell_waiting(self, call: CallRecord) -> None:
        """A person has to decide about a call. Whoever looks sees no secrets."""
        if self.emit:
            self.emit(
                CallAwaitsApproval(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=mask_arguments(call.arguments, self.offered[call.tool].input_schema),
                )
            )

    def tell_progress(self, call: ToolCall, progress: Progress) -> None:
        """A call has come further."""
        if self.emit:
            self.emit(
                CallProgressed(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    fraction=progress.fraction,
                    message=progress.message,
                )
            )

    def tell_end(self, call: ToolCall, result: ToolResult) -> None:
        """A call has its result."""
        if self.emit:
            self.emit(CallEnded(run_id=self.run_id, call_id=call.call_id, tool=call.tool, result=result))


def _nothing_to_send() -> asyncio.Future[bool]:
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    done.set_result(True)
    return done


@dataclass(slots=True)
class Sending:
    """A batch on its way."""

    batch: Batch
    barrier: Barrier
    answered_here: list[CallRecord]
    answers: dict[str, Returned | Failed] = field(default_factory=dict)
    """What interceptors said instead of a tool, by call id."""
    """Calls that no worker is asked: refused, unknown, or of a built-in tool."""
    deadlines_unix_s: dict[str, float] = field(default_factory=dict)
    """Of the calls that were sent just now, by call id."""
    direct: tuple[str, ...] = ()
    """Those of them whose result is the run's answer."""
    awaiting_approval: tuple[str, ...] = ()
    patience_s: dict[str, float] = field(default_factory=dict)
    records: tuple[CallRecord, ...] = ()
    """The calls that others are asked, or were."""
    sent: asyncio.Future[bool] = field(default_factory=_nothing_to_send)
    """Done when the last of them is in its queue, or (False) when they could not be sent."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What became of a batch.

    `fetched` are late results of earlier calls that the model asked for in this batch; `slow` are the calls that go on
    by themselves.
    """

    results: dict[str, ToolResult]
    fetched: dict[str, ToolResult]
    slow: frozenset[str]


class Calls:
    """Sends calls and waits for their results."""

    def __init__(
        self,
        settings: Settings,
        orchestrator_id: str,
        *,
        dispatcher: Dispatcher,
        gatherer: Gatherer,
        built_in: BuiltIn,
        agents: Agents,
        vault: Vault,
        on_unknown_tool: OnUnknownTool = "tell",
        needs_approval: Callable[[RequestedToolCall], bool] | None = None,
    ) -> None:
        self._settings = settings
        self._orchestrator_id = orchestrator_id
        self._dispatcher = dispatcher
        self._gatherer = gatherer
        self._built_in = built_in
        self._agents = agents
        self._vault = vault
        self._on_unknown_tool = on_unknown_tool
        self._needs_approval = needs_approval

    async def send(self, calls: Sequence[CallRecord], batch: Batch, *, patient: bool = False) -> Sending:
        """Send the calls that were not sent before; expect those that were. `patient`: none of them counts as slow."""
        elsewhere = [call for call in calls if self._is_for_others(call, batch)]
        elsewhere_ids = {call.call_id for call in elsewhere}
        sending = Sending(
            batch,
            Barrier(batch.tell_end, patient=patient),
            answered_here=[call for call in calls if call.call_id not in elsewhere_ids],
        )
        undecided = {call.call_id for call in elsewhere if self._waits_for_approval(call, batch)}
        sending.awaiting_approval = tuple(undecided)
        try:
            await self._send([call for call in elsewhere if call.call_id not in undecided], sending)
        except BaseException:
            self.give_up(sending)
            raise
        return sending

    async def send_early(self, calls: Sequence[CallRecord], batch: Batch) -> tuple[dict[str, float], tuple[str, ...]]:
        """Send those calls of an unfinished reply that nothing speaks against; the rest goes with the whole reply.

        Nobody expects their results yet. Returns deadlines by call id, and the ids of those that are direct.
        """
        outgoing = []
        for call in calls:
            if self._may_go_early(call, batch):
                spec = batch.offered[call.tool]
                outgoing.append(Outgoing(self._tool_call(call, spec, batch, call.arguments), spec, batch.priority))
        if not outgoing or not await self._dispatcher.send(outgoing):
            return {}, ()
        for each in outgoing:
            batch.tell_start(each.call, each.spec)
        direct = tuple(each.call.call_id for each in outgoing if each.spec.return_direct)
        return {each.call.call_id: each.call.deadline_unix_s for each in outgoing}, direct

    def _may_go_early(self, call: CallRecord, batch: Batch) -> bool:
        return (
            not batch.interceptors
            and not call.is_masked
            and call.tool not in self._agents
            and self._is_for_others(call, batch)
            and not self._waits_for_approval(call, batch)
            # A long job gains nothing by a moment; the model is to get a handle, not by chance a result.
            and not batch.offered[call.tool].long_running
        )

    async def gather(self, sending: Sending) -> Gathered:
        """Wait until every call has a result, is slow, or awaits approval. Raises BrokerUnreachable."""
        batch, barrier = sending.batch, sending.barrier
        fetched: dict[str, ToolResult] = {}
        timers = self._lose_patience_later(sending)
        try:
            answers = await asyncio.gather(*(self._answer(call, batch, fetched) for call in sending.answered_here))
            await barrier.wait()
        finally:
            for timer in timers:
                timer.cancel()
        here = zip((call.call_id for call in sending.answered_here), answers, strict=True)
        results = barrier.results | sending.answers | dict(here)
        if batch.interceptors:
            results = await self.after(sending.records, results, batch)
        return Gathered(results, fetched, frozenset(barrier.slow))

    async def after(
        self, records: Iterable[CallRecord], results: Mapping[str, ToolResult], batch: Batch
    ) -> dict[str, ToolResult]:
        """The results as interceptors want them recorded; a handle is no result."""
        changed = dict(results)
        for record in records if batch.interceptors else ():
            result = results.get(record.call_id)
            if isinstance(result, Returned | Failed) and record.tool in batch.offered:
                seen = _as_intercepted(record, batch, record.arguments)
                said = await after_all(batch.interceptors, seen, result)
                changed[record.call_id] = said.model_copy(update={"attempt": result.attempt})
        return changed

    async def compensated(
        self, calls: Sequence[CallRecord], results: Mapping[str, ToolResult], batch: Batch
    ) -> dict[str, ToolResult]:
        """The results of a batch, in which a failure has taken back what its neighbours did, each before the next.

        An orchestrator that was lost in the midst of it costs nothing: a compensation has one id, and runs once.
        """
        done = to_take_back(calls, results, batch.offered)
        arguments = await self._vault.arguments([each.record.call_id for each in done if each.record.is_masked])
        answers: dict[str, ToolResult] = {}
        for record, result in done:
            spec = batch.offered[record.tool]
            given = arguments.get(record.call_id, record.arguments)
            call = self._tool_call(record, spec, batch, given).model_copy(
                update={
                    "call_id": undo_id(record.call_id),
                    "undoes": result,
                    # Not the turn's: its end may be what has failed the others.
                    "deadline_unix_s": time.time() + self._settings.call_timeout_s,
                }
            )
            barrier = Barrier(patient=True)
            try:
                await self._gatherer.expect(call, barrier)
                if await self._dispatcher.send([Outgoing(call, spec, batch.priority)]):
                    # Another orchestrator may have sent it before, and its answer been told to that one.
                    await self._gatherer.look_up([call.call_id])
                await barrier.wait()
            finally:
                self._gatherer.give_up([call.call_id])
            answers[record.call_id] = barrier.results[call.call_id]
        return taken_back(calls, results, answers)

    def give_up(self, sending: Sending) -> None:
        """Expect nothing of this batch any more; what is still on its way goes on by itself."""
        self._gatherer.give_up(sending.barrier.open)

    def recorded(self, results: Mapping[str, ToolResult]) -> None:
        """These results are written down or handed over: Redis may drop them. Those of slow calls are still to come."""
        self._gatherer.forget(call_id for call_id, result in results.items() if not isinstance(result, Submitted))

    async def _send(self, calls: Sequence[CallRecord], sending: Sending) -> None:
        batch = sending.batch
        outgoing: list[Outgoing] = []
        for_agents: list[ToolCall] = []
        sent_before: list[ToolCall] = []
        sending.records = tuple(calls)
        arguments = await self._arguments(calls, sending)
        for record in calls:
            if record.call_id in sending.answers:
                continue
            spec = batch.offered.get(record.tool)
            call = self._tool_call(record, spec, batch, arguments.get(record.call_id, record.arguments))
            sending.patience_s[call.call_id] = self._patience_s(record, spec, batch)
            if self._gatherer.is_full:
                # What is ready must go before we wait for room, or nothing would ever make room.
                self._dispatcher.send(outgoing)
                outgoing = []
            # Expect before dispatch: a result that came first would find nobody waiting.
            await self._gatherer.expect(call, sending.barrier, batch.tell_progress)
            if record.deadline_unix_s is not None or spec is None:
                sent_before.append(call)
                continue
            sending.deadlines_unix_s[call.call_id] = call.deadline_unix_s
            if spec.return_direct:
                sending.direct += (call.call_id,)
            batch.tell_start(call, spec)
            if call.tool in self._agents:
                for_agents.append(call)
            else:
                outgoing.append(Outgoing(call, spec, batch.priority))
        sending.sent = self._dispatcher.send(outgoing)
        for call in for_agents:
            if refusal := await self._agents.start(call, depth=batch.depth, tenant=batch.tenant):
                self._gatherer.end(call, refusal)
        if sent_before:
            await self._gatherer.look_up(call.call_id for call in sent_before)

    async def _arguments(self, calls: Sequence[CallRecord], sending: Sending) -> dict[str, str]:
        """What calls that are not sent yet are to be sent with, where that is not what their record shows."""
        batch = sending.batch
        fresh = [record for record in calls if record.deadline_unix_s is None]
        arguments = await self._vault.arguments([record.call_id for record in fresh if record.is_masked])
        if not batch.interceptors:
            return arguments
        seen = [_as_intercepted(record, batch, arguments.get(record.call_id, record.arguments)) for record in fresh]
        outcomes = await asyncio.gather(*(before_all(batch.interceptors, call) for call in seen))
        for call, outcome in zip(seen, outcomes, strict=True):
            if isinstance(outcome, RequestedToolCall):
                arguments[call.call_id] = outcome.arguments
            else:
                sending.answers[call.call_id] = outcome
        return arguments

    def _is_for_others(self, call: CallRecord, batch: Batch) -> bool:
        """Whether a worker or an agent is to be asked, or was; the rest is answered here."""
        if call.deadline_unix_s is not None:
            return True  # whether or not a worker with its tool is there just now
        spec = batch.offered.get(call.tool)
        return call.refusal is None and spec is not None and (spec.queue != OWN_QUEUE or call.tool in self._agents)

    def _waits_for_approval(self, call: CallRecord, batch: Batch) -> bool:
        if call.deadline_unix_s is not None or call.approval is not None:
            return False
        policy = self._needs_approval
        return batch.offered[call.tool].requires_approval or (
            policy is not None and policy(_as_intercepted(call, batch, call.arguments))
        )

    def _lose_patience_later(self, sending: Sending) -> list[asyncio.TimerHandle]:
        """One timer for each length of patience in the batch; none at all for calls that have none."""
        by_patience: defaultdict[float, list[str]] = defaultdict(list)
        for call_id, patience_s in sending.patience_s.items():
            by_patience[patience_s].append(call_id)
        if sending.batch.slow == "handle":
            sending.barrier.become_handles(by_patience.get(0.0, ()))
        sending.barrier.lose_patience(by_patience.pop(0.0, ()))
        loop = asyncio.get_running_loop()
        return [
            loop.call_later(patience_s, sending.barrier.lose_patience, call_ids)
            for patience_s, call_ids in by_patience.items()
        ]

    def _patience_s(self, record: CallRecord, spec: ToolSpec | None, batch: Batch) -> float:
        if record.handle or (spec and spec.long_running):
            return 0.0
        asked = (batch.patience_s, spec.patience_s if spec else None, self._settings.patience_s)
        return next(patience_s for patience_s in asked if patience_s is not None)

    async def _answer(
        self, call: CallRecord, batch: Batch, fetched: dict[str, ToolResult]
    ) -> Returned | Failed | Submitted:
        """The answer to a call that no worker is asked."""
        if call.refusal is not None:
            return call.refusal
        if call.tool in batch.offered and call.tool in BUILT_IN:
            return await self._built_in.answer(
                call.tool, call.arguments, batch.run_id, fetched.__setitem__, batch.tasks
            )
        owner = owner_of(batch.interceptors, call.tool)
        if call.tool in batch.offered and owner is not None:
            return await owner.answer(_as_intercepted(call, batch, call.arguments))
        if call.tool in batch.offered and batch.search is not None:
            return await batch.search(call.arguments)
        return await self._unknown(call, batch)

    async def _unknown(self, call: CallRecord, batch: Batch) -> Returned | Failed:
        failure = unknown_tool(call.tool, batch.offered)
        if self._on_unknown_tool == "tell":
            return failure
        if self._on_unknown_tool == "raise":
            raise UnknownTool(failure.message)
        return await self._on_unknown_tool(call)

    def _tool_call(self, record: CallRecord, spec: ToolSpec | None, batch: Batch, arguments: str) -> ToolCall:
        return ToolCall(
            call_id=record.call_id,
            run_id=batch.run_id,
            tool=spec.name if spec else record.tool,
            arguments=arguments,
            deadline_unix_s=record.deadline_unix_s or self._deadline_unix_s(spec, batch),
            reply_to=self._orchestrator_id,
            context=_context(spec, batch),
            state=dict(batch.values),
        )

    def _deadline_unix_s(self, spec: ToolSpec | None, batch: Batch) -> float:
        settings = self._settings
        is_long = spec is not None and (spec.long_running or spec.name in self._agents)
        timeout_s = settings.long_call_timeout_s if is_long else settings.call_timeout_s
        deadline_unix_s = time.time() + max(timeout_s, (spec and spec.timeout_s) or 0)
        return min(deadline_unix_s, batch.deadline_unix_s or deadline_unix_s)


def _context(spec: ToolSpec | None, batch: Batch) -> dict[str, Any]:
    """What goes with a call: the caller's own, and the conversation for a tool that wants it."""
    if spec is None or not spec.wants_history:
        return dict(batch.context)
    return {**batch.context, HISTORY: [message.model_dump(mode="json") for message in batch.history]}


def _as_intercepted(record: CallRecord, batch: Batch, arguments: str) -> RequestedToolCall:
    return RequestedToolCall(
        call_id=record.call_id,
        run_id=batch.run_id,
        tool=record.tool,
        arguments=arguments,
        spec=batch.offered[record.tool],
        context=batch.context,
    )
