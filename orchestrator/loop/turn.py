"""The turn loop: asks the model, sends its calls, gives it the results, until it answers or only slow calls are left.

The only file that knows the order of things. Every step is written down before the next one begins, and each step
begins from what is written down: a run that was interrupted goes on through the same lines as one that was not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

import orjson
import structlog

from toolfleet.calls import Submitted, ToolResult
from toolfleet.errors import (
    BrokerUnreachable,
    HandleNotFound,
    ModelReplyInvalid,
    StoreUnreachable,
    ToolfleetError,
)
from toolfleet.masks import has_secrets
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage
from toolfleet.orchestrator.calls.group import Batch, Calls, Emit, Sending
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.fleet.gather import DEADLINE_GRACE_S, Gatherer, never_came_back
from toolfleet.orchestrator.loop.early import EarlyCalls
from toolfleet.orchestrator.loop.images import Showing
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    CallDelta,
    ChatModel,
    FinishReason,
    ModelEvent,
    ReplyComplete,
    Restarted,
    TextDelta,
)
from toolfleet.orchestrator.run.events import (
    CallRecord,
    CallsBack,
    CallsHandedOver,
    CallsParked,
    CallsSent,
    ModelReplied,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.limits import TIMED_OUT, breach, over_limit
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.structured import instruction, problem_with
from toolfleet.orchestrator.run.updates import (
    CallArgumentsArrived,
    CallEnded,
    CallsRequested,
    CallSubmitted,
    TextArrived,
)
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.handles import Handles, Status
from toolfleet.orchestrator.store.journal import Journal, LostRun, Overtaken, RunIsOver
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.builtin import TASK_RESULT
from toolfleet.orchestrator.tools.interceptors import Interceptors
from toolfleet.orchestrator.tools.offer import Offering
from toolfleet.points import Point, reached
from toolfleet.tool import ToolSpec
from toolfleet.wire import Refused, Seal

log = structlog.get_logger("toolfleet.orchestrator")

EARLY_ROOM = 20
"""How far from a limit on calls a run must be for calls to go before it is known how many its reply asks for."""

MAX_REPAIRS = 1
"""How often a model is asked again for an answer that fits its schema."""

KEEP_LATE_S = 24 * 3600
"""How much longer than the last open call a result is kept that came before it."""


class TurnLoop:
    """Takes a run as far as it goes now."""

    def __init__(
        self,
        model: ChatModel,
        *,
        offering: Offering,
        interceptors: Interceptors,
        calls: Calls,
        handles: Handles,
        store: RunStore,
        gatherer: Gatherer,
        vault: Vault,
        canceller: Canceller,
        seal: Seal,
        showing: Showing,
    ) -> None:
        self._model = model
        self._offering = offering
        self._interceptors = interceptors
        self._calls = calls
        self._handles = handles
        self._store = store
        self._gatherer = gatherer
        self._vault = vault
        self._canceller = canceller
        self._seal = seal
        self._showing = showing
        self.is_draining = False
        """Set it, and every run stops after the step it is at."""

    async def drive(self, journal: Journal, emit: Emit | None) -> None:
        """Take turns until the run has ended or rests until something is back. Whatever fails, a run says why.

        Raises LostRun and RunIsOver when the run is not ours to go on with, StoreUnreachable and BrokerUnreachable when
        it has to be read again later.
        """
        try:
            while not journal.run.state.is_terminal and not self.is_draining:
                try:
                    if not await self._step(journal, emit):
                        return
                except Overtaken as news:
                    log.info("run_overtaken", run_id=journal.run.run_id, reason=str(news))
        except (LostRun, RunIsOver, StoreUnreachable, BrokerUnreachable):
            raise
        except ToolfleetError as error:
            await self._stop(journal, str(error))
        except Exception as error:  # the second of the two places that may catch everything: a run must end in a state
            log.exception("run_failed", run_id=journal.run.run_id)
            await self._stop(journal, f"internal error: {type(error).__name__}: {error}")

    async def _step(self, journal: Journal, emit: Emit | None) -> bool:
        """One step. Whether there may be another one now."""
        run = journal.run
        match run.state:
            case State.THINKING if (reason := breach(run, time.time())) is not None:
                await self._stop(journal, reason)
            case State.CALLING if (reason := breach(run, time.time())) is not None:
                await self._refuse(journal, reason)
            case State.THINKING:
                await self._ask(journal, emit)
            case State.CALLING | State.PARKED if run.only_callers_calls_left:
                await journal.append(CallsHandedOver())
            case State.CALLING:
                await self._call(journal, emit)
            case State.PARKED:
                return await self._collect(journal, emit)
            case _:
                return await self._deliver(journal)
        return True

    # --- thinking -----------------------------------------------------------------------------------------------

    async def _ask(self, journal: Journal, emit: Emit | None) -> None:
        """One reply of the model, stored before anything it asks for is done."""
        run = journal.run
        if run.streamed:
            await self._go_on_with_half_a_reply(journal)
            return
        offered, choice = await self._offering.for_model(run)
        keep = partial(self._kept, run, offered)
        early = EarlyCalls(journal, self._calls, self._batch(run, _sendable(run, offered), emit), keep)
        try:
            reply = await self._reply(run, offered, emit, early)
        finally:
            await early.finish()
        reached(Point.REPLY_RECEIVED, run.run_id)
        said, masked = await keep(reply.message)
        run = await journal.append(
            ModelReplied(
                message=said,
                masked=masked,
                offered=choice,
                problem=_problem(run, said),
                usage=reply.usage,
                cut_off=reply.finish_reason == FinishReason.LENGTH,
            )
        )
        reached(Point.REPLY_STORED, run.run_id)
        if run.calls_owed and emit:
            emit(CallsRequested(run_id=run.run_id, turn=run.turn, calls=len(run.calls_owed)))

    async def _go_on_with_half_a_reply(self, journal: Journal) -> None:
        """Calls of a reply were sent whose rest nobody has: they are the reply. Asking again could ask for others."""
        run = journal.run
        calls = tuple(
            RequestedCall(id=call.requested_id, name=call.tool, arguments=call.arguments) for call in run.streamed
        )
        masked = tuple(call.call_id for call in run.streamed if call.is_masked)
        await journal.append(ModelReplied(message=AssistantMessage(tool_calls=calls), masked=masked))

    async def _kept(
        self, run: Run, offered: Mapping[str, ToolSpec], message: AssistantMessage
    ) -> tuple[AssistantMessage, tuple[str, ...]]:
        """A reply as it may be stored: each call with an id of its own, secrets masked."""
        return await self._vault.keep(_with_distinct_ids(message), run.run_id, run.turn + 1, offered)

    async def _reply(
        self, run: Run, offered: Mapping[str, ToolSpec], emit: Emit | None, early: EarlyCalls
    ) -> ReplyComplete:
        left_s = None if run.deadline_unix_s is None else run.deadline_unix_s - time.time()
        clock = asyncio.timeout(left_s)
        try:
            heard = await self._showing.shown(_heard(run), run.run_id)
            async with clock, aclosing(self._asked(run, heard, offered)) as events:
                async for event in events:
                    if isinstance(event, TextDelta) and emit:
                        emit(TextArrived(run_id=run.run_id, text=event.text))
                    elif isinstance(event, CallDelta) and emit:
                        emit(_arrived(run, event, offered))
                    elif isinstance(event, CallComplete):
                        early.add(event.call)
                    elif isinstance(event, Restarted):
                        log.info("reply_restarted", run_id=run.run_id, attempt=event.attempt)
                    elif isinstance(event, ReplyComplete):
                        return event
        except TimeoutError:
            if clock.expired():
                raise RunTimedOut(TIMED_OUT) from None
            raise
        raise ModelReplyInvalid(f"{self._model.name} ended its reply without completing it")

    def _asked(
        self, run: Run, heard: Sequence[Message], offered: Mapping[str, ToolSpec]
    ) -> AsyncGenerator[ModelEvent, None]:
        options = {name: value for name, value in run.model_options.items() if name != "tool_choice" or run.turn == 0}
        if not options:
            return self._model.stream(heard, list(offered.values()))
        return self._model.stream(heard, list(offered.values()), extra_body=options)

    # --- calling ------------------------------------------------------------------------------------------------

    async def _call(self, journal: Journal, emit: Emit | None) -> None:
        """The calls of the last reply: sent unless they were, waited for as long as their patience lasts."""
        run = journal.run
        batch = self._batch(run, await self._offering.for_calls(run), emit)
        owed = [call for call in run.calls_owed if not run.is_callers(call)]
        sending = await self._calls.send(owed, batch, patient=run.compensate)
        try:
            await self._record_sent(journal, sending)
            gathered = await self._calls.gather(sending)
        finally:
            self._calls.give_up(sending)
        run = journal.run
        reached(Point.GATHERED, run.run_id)
        slow = await self._handed_out(run, gathered.slow, batch)
        results: dict[str, ToolResult] = gathered.results
        if run.compensate:
            results = await self._calls.compensated(owed, results, batch)
        if run.slow == "handle":
            results = results | slow
            self._gatherer.watch(run.run_id, slow)
        if results or gathered.fetched:
            await journal.append(
                CallsBack(results=results, messages=run.messages_with(results), fetched=gathered.fetched)
            )
            self._calls.recorded(gathered.results | gathered.fetched)
            await self._vault.forget([call.call_id for call in run.calls if call.is_masked and call.call_id in results])
        run = journal.run
        # A decision may have come with the results: its call is to be sent, or refused, before the run rests.
        if run.state is State.CALLING and not run.only_callers_calls_left and not run.calls_to_send:
            handles = {} if run.slow == "handle" else {call_id: each.handle for call_id, each in slow.items()}
            await journal.append(CallsParked(handles=handles))

    def _batch(self, run: Run, offered: Mapping[str, ToolSpec], emit: Emit | None) -> Batch:
        """What the calls of the run's last reply share."""
        return Batch(
            run_id=run.run_id,
            offered=offered,
            interceptors=self._interceptors.chosen(run.interceptors),
            search=partial(self._offering.search, run),
            emit=emit,
            slow=run.slow,
            patience_s=run.patience_s,
            context=run.context,
            deadline_unix_s=_turn_ends_unix_s(run),
            values=run.values,
            # Without the reply itself: calls may be sent before the last of it has come.
            history=run.messages[:-1] if run.state is State.CALLING else run.messages,
            tasks=run.tasks if run.slow == "handle" else {},
            depth=run.depth,
            tenant=run.tenant,
        )

    async def _record_sent(self, journal: Journal, sending: Sending) -> None:
        """From here on an orchestrator that takes over waits for these calls instead of sending them again."""
        asked_before = {call.call_id for call in journal.run.calls_owed if call.awaits_approval}
        undecided = tuple(call_id for call_id in sending.awaiting_approval if call_id not in asked_before)
        if not sending.deadlines_unix_s and not undecided:
            return
        if await sending.sent:
            reached(Point.DISPATCHED, journal.run.run_id)
            await journal.append(
                CallsSent(deadlines_unix_s=sending.deadlines_unix_s, direct=sending.direct, awaiting_approval=undecided)
            )
            # Now, not before: whoever hears of it may decide at once.
            for call in journal.run.awaiting_approval if undecided else ():
                if call.call_id in undecided:
                    sending.batch.tell_waiting(call)

    async def _handed_out(self, run: Run, call_ids: Iterable[str], batch: Batch) -> dict[str, Submitted]:
        """A handle for each slow call, the one it has or a new one."""
        by_id = {call.call_id: call for call in run.calls_owed}
        handed_out = {}
        for call_id in call_ids:
            call = by_id[call_id]
            spec = batch.offered.get(call.tool)
            submitted = await self._handles.submit(
                call, run.run_id, queue=spec.queue if spec else "", priority=batch.priority, principal=run.tenant
            )
            handed_out[call_id] = submitted
            if batch.emit and not call.handle:
                batch.emit(CallSubmitted(run_id=run.run_id, call_id=call_id, tool=call.tool, handle=submitted.handle))
        return handed_out

    # --- parked -------------------------------------------------------------------------------------------------

    async def _collect(self, journal: Journal, emit: Emit | None) -> bool:
        """What is back of the slow calls. Whether the run goes on; otherwise it is watched, and rests."""
        run = journal.run
        under_way = {call.call_id: call for call in run.calls_owed if call.deadline_unix_s is not None}
        # Watch before reading: a result that landed between the two would be missed.
        self._gatherer.watch(run.run_id, under_way, until_unix_s=_next_deadline_unix_s(run))
        results = await self._results(under_way)
        if not results:
            reached(Point.PARKED, run.run_id)
            return False
        self._gatherer.unwatch(run.run_id, under_way)
        results = await self._calls.after(under_way.values(), results, await self._interception(run))
        if emit:
            for call_id, result in results.items():
                emit(CallEnded(run_id=run.run_id, call_id=call_id, tool=under_way[call_id].tool, result=result))
        await journal.append(CallsBack(results=results, messages=run.messages_with(results)))
        self._calls.recorded(results)
        await self._vault.forget([call_id for call_id in results if under_way[call_id].is_masked])
        return True

    async def _results(self, calls: Mapping[str, CallRecord]) -> dict[str, ToolResult]:
        """The results that are stored, and those of calls whose deadline has passed without one."""
        results: dict[str, ToolResult] = {}
        stored = await self._store.results(list(calls))
        for (call_id, call), sealed in zip(calls.items(), stored, strict=True):
            result = None if sealed is None else self._believed(sealed, call_id)
            if result is not None:
                results[call_id] = result
            elif time.time() > (call.deadline_unix_s or 0) + DEADLINE_GRACE_S:
                results[call_id] = never_came_back(call.tool)
        return results

    def _believed(self, sealed: bytes, call_id: str) -> ToolResult | None:
        try:
            return self._seal.open_result(sealed, call_id)
        except Refused as refusal:
            log.warning("result_refused", call_id=call_id, reason=str(refusal))
            return None

    # --- waiting ------------------------------------------------------------------------------------------------

    async def _deliver(self, journal: Journal) -> bool:
        """Results that the model did not fetch, delivered into the conversation exactly once, before the run ends."""
        run = journal.run
        open_calls = run.open_slow_calls
        ids = [call.call_id for call in open_calls]
        self._gatherer.watch(run.run_id, ids, until_unix_s=_next_deadline_unix_s(run))
        statuses = [await self._handles.status(_handle(call), run.run_id, tasks=run.tasks) for call in open_calls]
        if not all(status.is_terminal for status in statuses):
            back = [call_id for call_id, status in zip(ids, statuses, strict=True) if status.is_terminal]
            await self._store.keep_results(back, max(call.deadline_unix_s or 0 for call in open_calls) + KEEP_LATE_S)
            return False
        self._gatherer.unwatch(run.run_id, ids)
        results: dict[str, ToolResult] = {}
        messages: list[Message] = []
        for call, status in zip(open_calls, statuses, strict=True):
            if status.result is None:
                raise HandleNotFound(f"task {_handle(call)} of {call.tool} is gone: {status.message}")
            results[call.call_id] = status.result
            messages += _as_if_fetched(call, status)
        results = await self._calls.after(open_calls, results, await self._interception(run))
        await journal.append(SlowResultDelivered(results=results, messages=tuple(messages)))
        self._calls.recorded(results)
        return True

    async def _interception(self, run: Run) -> Batch:
        """What interceptors are told of a call that is back after its run has rested."""
        chain = self._interceptors.chosen(run.interceptors)
        offered = await self._offering.for_calls(run) if chain else {}
        return Batch(run_id=run.run_id, offered=offered, context=run.context, interceptors=chain)

    async def _refuse(self, journal: Journal, reason: str) -> None:
        """The run has reached a limit with calls open: they are answered, those under way are given up, and it ends."""
        run = journal.run
        results: dict[str, ToolResult] = {call.call_id: over_limit(call.tool, reason) for call in run.calls_owed}
        await self._cancel(run)
        await journal.append(CallsBack(results=results, messages=run.messages_with(results)))
        await self._stop(journal, reason)

    async def _stop(self, journal: Journal, reason: str) -> None:
        """The run fails; nobody wants what is still under way for it."""
        run = journal.run
        await journal.append(RunStopped(state="failed", reason=reason))
        await self._cancel(run)

    async def _cancel(self, run: Run) -> None:
        await self._canceller.cancel(
            [
                CancelRequest(call.call_id, call.tool, call.deadline_unix_s or time.time())
                for call in run.calls_under_way
            ]
        )


class AnswerUnfit(ToolfleetError):
    """The model did not give its answer in the form that was asked for, twice."""


class RunTimedOut(ToolfleetError):
    """The run's own deadline has passed."""


def _sendable(run: Run, offered: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools whose calls may go before the reply is whole: not the caller's own, and none near a limit."""
    limits, recent = run.limits, run.recent_calls
    if limits.calls is not None and len(recent) + EARLY_ROOM > limits.calls:
        return {}
    asked = Counter(call.tool for call in recent)
    return {
        name: spec
        for name, spec in offered.items()
        if (limits.calls_per_tool is None or asked[name] + EARLY_ROOM <= limits.calls_per_tool)
        and all(name != own.name for own in run.client_tools)
    }


def _arrived(run: Run, delta: CallDelta, offered: Mapping[str, ToolSpec]) -> CallArgumentsArrived:
    """For whoever looks: half a secret could not be masked, so of tools that have secrets no piece is shown."""
    is_secret = delta.name in offered and has_secrets(offered[delta.name].input_schema)
    return CallArgumentsArrived(
        run_id=run.run_id,
        index=delta.index,
        requested_id=delta.id,
        tool=delta.name,
        arguments_delta="" if is_secret else delta.arguments_delta,
    )


def _heard(run: Run) -> Sequence[Message]:
    """What the model is told: the conversation, and in which form it must answer."""
    return run.messages if run.output_schema is None else (*run.messages, instruction(run.output_schema))


def _problem(run: Run, said: AssistantMessage) -> str | None:
    """What is wrong with an answer that must fit a schema. Raises AnswerUnfit when it was so before."""
    if run.output_schema is None or said.tool_calls:
        return None
    problem = problem_with(said.content, run.output_schema)
    if problem is not None and run.repairs >= MAX_REPAIRS:
        raise AnswerUnfit(problem)
    return problem


def _turn_ends_unix_s(run: Run) -> float | None:
    """When calls that are sent now expire at the latest."""
    ends = [] if run.deadline_unix_s is None else [run.deadline_unix_s]
    if run.turn_timeout_s is not None:
        ends.append(time.time() + run.turn_timeout_s)
    return min(ends, default=None)


def _next_deadline_unix_s(run: Run) -> float | None:
    """When a resting run must be looked at although nothing has come back."""
    deadlines = [call.deadline_unix_s for call in run.calls_under_way if call.deadline_unix_s is not None]
    if run.awaiting_approval and run.deadline_unix_s is not None:
        deadlines.append(run.deadline_unix_s)
    return min(deadlines, default=None)


def _handle(call: CallRecord) -> str:
    return call.result.handle if isinstance(call.result, Submitted) else call.handle


def _as_if_fetched(call: CallRecord, status: Status) -> list[Message]:
    """The request for a late result that the model did not make, and its answer."""
    fetch_id = f"{call.requested_id}-late"
    arguments = orjson.dumps({"task_id": status.task_id}).decode()
    return [
        AssistantMessage(tool_calls=(RequestedCall(id=fetch_id, name=TASK_RESULT, arguments=arguments),)),
        ToolMessage(tool_call_id=fetch_id, name=TASK_RESULT, content=status.for_model()),
    ]


def _with_distinct_ids(message: AssistantMessage) -> AssistantMessage:
    """The reply with every call's id its own: some providers double or omit them, and answers are paired by id."""
    seen: set[str] = set()
    calls = []
    for position, call in enumerate(message.tool_calls):
        if not call.id or call.id in seen:
            call = call.model_copy(update={"id": f"{call.id or 'call'}-{position}"})  # noqa: PLW2901
        seen.add(call.id)
        calls.append(call)
    return message.model_copy(update={"tool_calls": tuple(calls)})
