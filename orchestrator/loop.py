"""The turn loop: asks the model, sends its calls, gives it the results, until it answers.

The only file that knows the order of things. Every step is written down before the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

import orjson
import structlog

from orchestrator.builtin import BUILT_IN, TASK_RESULT
from orchestrator.calls import Batch, Calls, Emit
from orchestrator.catalog import Catalog
from orchestrator.events import CallsRequested, TextArrived
from orchestrator.handles import Handles
from orchestrator.messages import tool_messages
from orchestrator.models.protocol import ChatModel, FinishReason, ReplyComplete, Restarted, TextDelta
from orchestrator.run import CallRecord, CallsBack, ModelReplied, Run, RunStopped, SlowResultDelivered, State
from orchestrator.store import RunStore
from toolfleet.calls import ToolResult
from toolfleet.errors import HandleNotFound, ModelReplyInvalid, ToolfleetError
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage
from toolfleet.tool import ToolSpec

log = structlog.get_logger("toolfleet.orchestrator")


class TurnLoop:
    """Takes a run to its end."""

    def __init__(self, model: ChatModel, *, catalog: Catalog, calls: Calls, handles: Handles, store: RunStore) -> None:
        self._model = model
        self._catalog = catalog
        self._calls = calls
        self._handles = handles
        self._store = store

    async def drive(self, run: Run, emit: Emit) -> Run:
        """Take turns until the run has ended. Whatever fails, the run ends in a stored state and says why."""
        try:
            while not run.state.is_terminal:
                run = await self._step(run, emit)
        except ToolfleetError as error:
            return await self._stop(run, str(error))
        except Exception as error:  # the second of the two places that may catch everything: a run must end in a state
            log.exception("run_failed", run_id=run.run_id)
            return await self._stop(run, f"internal error: {type(error).__name__}: {error}")
        return run

    async def _step(self, run: Run, emit: Emit) -> Run:
        match run.state:
            case State.THINKING if run.turn >= run.max_turns:
                return await self._stop(run, f"the limit of {run.max_turns} turns is reached")
            case State.THINKING:
                return await self._ask(run, emit)
            case State.CALLING:
                return await self._call(run, emit)
            case _:
                return await self._wait_for_slow_calls(run)

    async def _ask(self, run: Run, emit: Emit) -> Run:
        """One reply of the model, stored before anything it asks for is done."""
        offered = await self._offered(run)
        reply = await self._reply(run, offered, emit)
        event = ModelReplied(
            message=_with_distinct_ids(reply.message),
            usage=reply.usage,
            cut_off=reply.finish_reason == FinishReason.LENGTH,
        )
        await self._store.append(run.run_id, event)
        run = run.on(event)
        if run.calls_owed:
            emit(CallsRequested(run_id=run.run_id, turn=run.turn, calls=len(run.calls_owed)))
        return run

    async def _call(self, run: Run, emit: Emit) -> Run:
        """Every call of the last reply to a result, all stored in one event."""
        owed = run.calls_owed
        batch = Batch(
            run_id=run.run_id,
            offered=await self._catalog.choose(run.tools),
            emit=emit,
            slow=run.slow,
            context=run.context,
            deadline_unix_s=run.deadline_unix_s,
        )
        gathered = await self._calls.perform([call for call in owed if call.refusal is None], batch)
        results = gathered.results | {call.call_id: call.refusal for call in owed if call.refusal is not None}
        event = CallsBack(results=results, messages=tool_messages(owed, results), fetched=gathered.fetched)
        await self._store.append(run.run_id, event)
        self._calls.recorded(gathered.results | gathered.fetched)
        return run.on(event)

    async def _wait_for_slow_calls(self, run: Run) -> Run:
        """Results that the model did not fetch, delivered into the conversation exactly once, before the run ends."""
        results: dict[str, ToolResult] = {}
        messages: list[Message] = []
        for call in run.open_slow_calls:
            results[call.call_id], delivered = await self._late_result(run, call)
            messages += delivered
        event = SlowResultDelivered(results=results, messages=tuple(messages))
        await self._store.append(run.run_id, event)
        return run.on(event)

    async def _late_result(self, run: Run, call: CallRecord) -> tuple[ToolResult, list[Message]]:
        """The final result of a submitted call, and the messages of a fetch that the model did not make itself."""
        handle = getattr(call.result, "handle", "")
        while True:
            status = await self._handles.status(handle, run.run_id, wait_s=60)
            if status.result is not None:
                break
            if status.is_terminal:  # its record has expired
                raise HandleNotFound(f"task {handle} of {call.tool} is gone: {status.message}")
        fetch_id = f"{call.requested_id}-late"
        arguments = orjson.dumps({"task_id": handle}).decode()
        return status.result, [
            AssistantMessage(tool_calls=(RequestedCall(id=fetch_id, name=TASK_RESULT, arguments=arguments),)),
            ToolMessage(tool_call_id=fetch_id, name=TASK_RESULT, content=status.for_model()),
        ]

    async def _reply(self, run: Run, offered: Mapping[str, ToolSpec], emit: Emit) -> ReplyComplete:
        async with aclosing(self._model.stream(run.messages, list(offered.values()))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    emit(TextArrived(run_id=run.run_id, text=event.text))
                elif isinstance(event, Restarted):
                    log.info("reply_restarted", run_id=run.run_id, attempt=event.attempt)
                elif isinstance(event, ReplyComplete):
                    return event
        raise ModelReplyInvalid(f"{self._model.name} ended its reply without completing it")

    async def _offered(self, run: Run) -> dict[str, ToolSpec]:
        """What the model may call now: the run's tools as live workers serve them, and the built-in ones."""
        offered = await self._catalog.choose(run.tools)
        return {**offered, **BUILT_IN} if run.slow == "handle" else offered

    async def _stop(self, run: Run, reason: str) -> Run:
        event = RunStopped(state="failed", reason=reason)
        run = run.on(event)
        try:
            await self._store.append(run.run_id, event)
        except ToolfleetError as error:
            log.warning("end_not_stored", run_id=run.run_id, error=str(error))
        return run


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
