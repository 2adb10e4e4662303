"""One reply of the model: asked for, heard piece by piece, and stored before anything it asks for is done.

What is complete of a reply may be sent before the rest has come (`early.py`). From that moment the reply is never asked
for again: another one could ask for other calls than those that have run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.masks import has_secrets
from toolfleet.messages import AssistantMessage, Message, UserMessage
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.budgets.spending import Fate, Reserved, Spending, what_is_left
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.errors import LostRun, ModelReplyInvalid, Overtaken, RunIsOver
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.early import EarlyCalls
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.models.encodable import encodable_reply
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    CallDelta,
    ChatModel,
    ModelEvent,
    ReplyComplete,
    Restarted,
    TextDelta,
    ThoughtDelta,
)
from toolfleet.orchestrator.run.call_ids import DistinctIds
from toolfleet.orchestrator.run.events import BudgetRanLow, ModelReplied
from toolfleet.orchestrator.run.incomplete import NO_SECOND_TRY, Incomplete, lacking
from toolfleet.orchestrator.run.limits import TIMED_OUT, Reached, beyond, last_word, within_limits, without
from toolfleet.orchestrator.run.nearly_spent import reminder
from toolfleet.orchestrator.run.structured import instruction, problem_with
from toolfleet.orchestrator.run.updates import (
    BudgetRunsLow,
    CallArgumentsArrived,
    CallsRequested,
    ReplyBegan,
    TextArrived,
    ThoughtArrived,
)
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.offer import Offering
from toolfleet.points import Point, reached
from toolfleet.strict_json import encodable
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.orchestrator")

MAX_REPAIRS: Final = 1
"""How often a model is asked again for an answer that fits its schema."""


class AnswerUnfit(ToolfleetError):
    """The model did not give its answer in the form that was asked for, twice."""


class RunTimedOut(ToolfleetError):
    """The run's own deadline has passed."""


@dataclass(frozen=True, slots=True)
class HeardReply:
    """A whole reply, and how often it was begun anew on the way."""

    reply: ReplyComplete
    restarts: int


@dataclass(slots=True)
class Paid:
    """What is held for a reply, and what it has come to once it is there."""

    reserved: Reserved | None
    over: Reached | None
    """The limit because of which it must be the last one, and has no tools."""
    reply: ReplyComplete | None = None
    fate: Fate = Fate.UNSTORED
    reminder: tuple[UserMessage, ...] = ()
    """What the model is told of what is left, where it is to know."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks one model for replies, and agents' own models for those of their runs."""

    model: ChatModel
    agents: Agents
    offering: Offering
    scopes: Scopes
    services: CallServices
    images: KeptImages
    spending: Spending

    async def ask(self, work: RunAtWork, over: Reached | None = None) -> None:
        """Store one reply of the model; its last, without tools, where the run is over a limit.

        Raises RunTimedOut, AnswerUnfit, BudgetSpent, UnknownPrice, and what the model raises.
        """
        if work.run.streamed:
            await work.journal.append(*within_limits(work.run, work.run.half_a_reply, time.time()))
            return
        _must_be_fit(work.run)  # whoever stored the last answer may have been lost right after
        offered, choice = await self.offering.for_model(work.run)
        async with self._paid(work, offered, over) as paid:
            offered = {} if paid.over else offered
            await _tell_what_is_left(work, paid)
            figures = RUNS.by_model[(self.agents.model_of(work.run) or self.model).name]
            with figures.timed():
                heard = await self._hear_reply(work, offered, paid)
            figures.add_reply(heard.reply.usage.input_tokens, heard.reply.usage.output_tokens)
            reached(Point.REPLY_RECEIVED, work.run.run_id)
            run = await self._record_reply(work, heard, offered, choice, paid)
            reached(Point.REPLY_STORED, run.run_id)
        _must_be_fit(run)
        if work.emit and run.calls_owed:
            work.emit(CallsRequested(run_id=run.run_id, turn=run.turn, calls=len(run.calls_owed)))

    @asynccontextmanager
    async def _paid(
        self, work: RunAtWork, offered: Mapping[str, ToolSpec], over: Reached | None
    ) -> AsyncGenerator[Paid, None]:
        """What the budgets say of the next reply; what it has come to is booked at the end of the block."""
        run = work.run
        model, messages = self.agents.model_of(run) or self.model, _messages_for_model(run, over)
        left_s = None if run.deadline_unix_s is None else run.deadline_unix_s - time.time()
        clock = asyncio.timeout(left_s)
        try:
            async with clock:
                reserved, spent = await self.spending.reserve(run, model.name, messages, offered, is_last=bool(over))
        except TimeoutError:
            if clock.expired():
                raise RunTimedOut(TIMED_OUT) from None
            raise
        paid = Paid(reserved, over or spent)
        try:
            yield paid
        finally:
            if reserved is not None:
                await self.spending.settle(work.run, reserved, paid.reply, paid.fate)

    async def _hear_reply(self, work: RunAtWork, offered: Mapping[str, ToolSpec], paid: Paid) -> HeardReply:
        """The reply, once it is whole and nothing is being sent for it any more."""
        mask = partial(self._mask_secrets, work.run, offered, DistinctIds(work.run.tally.ids))
        early = EarlyCalls(work.journal, self.services, partial(self.scopes.for_early_calls, work, offered), mask)
        if paid.reserved or paid.over:
            early.forbid()
        try:
            heard = await self._listen(work, offered, early, paid)
            paid.reply = heard.reply
            return heard
        finally:
            # Before the reply is stored: of two writers only one can be right about the entry that comes before.
            await early.finish()

    async def _record_reply(
        self,
        work: RunAtWork,
        heard: HeardReply,
        offered: Mapping[str, ToolSpec],
        choice: tuple[str, ...] | None,
        paid: Paid,
    ) -> Run:
        reply = heard.reply
        said, masked = await self._mask_secrets(work.run, offered, DistinctIds(work.run.tally.ids), reply.message)
        lacks = lacking(said, reply.finish_reason)
        replied = ModelReplied(
            message=said,
            masked=masked,
            offered=choice,
            problem=_problem_with_answer(work.run, said, lacks),
            usage=reply.usage,
            incomplete=lacks,
            service_tier=reply.service_tier,
            system_fingerprint=reply.system_fingerprint,
            restarts=heard.restarts,
            is_last=paid.over is not None,
        )
        run = await _stored(work, paid, *await self._judged(work.run, replied, paid))
        if run.incomplete is not None:
            log.warning("run.answer_incomplete", run_id=run.run_id, lacks=run.incomplete.value)
        return run

    async def _judged(self, run: Run, replied: ModelReplied, paid: Paid) -> tuple[ModelReplied, Run]:
        """The reply as it is to be stored, with the limit that stands against its calls, if any does."""
        if paid.over is not None and replied.message.tool_calls:
            return beyond(run, replied, Reached(paid.over.reason))
        replied, after = within_limits(run, replied, time.time())
        while paid.reserved is not None and replied.over_limit is None:
            calls = [call.call_id for call in after.calls_owed if call.call_id not in replied.withheld]
            against = await self.spending.judge(run, paid.reserved, replied.usage, len(calls)) if calls else None
            if against is None:
                break
            if isinstance(against, Reached):
                return beyond(run, replied, against)
            replied, after = without(run, replied, calls[against.left :], against.reason)
        return replied, after

    async def _mask_secrets(
        self, run: Run, offered: Mapping[str, ToolSpec], ids: DistinctIds, message: AssistantMessage, begins: int = 0
    ) -> tuple[AssistantMessage, tuple[str, ...]]:
        """A reply as it may be stored: in valid UTF-8, each call with an id of its own, secrets kept elsewhere.

        Or a part of one, the calls from its place `begins` on.
        """
        message = ids.for_next(encodable_reply(message))
        if not message.tool_calls:
            return message, ()
        return await self.services.vault.keep(message, run.run_id, run.turn + 1, offered, begins=begins)

    async def _listen(
        self, work: RunAtWork, offered: Mapping[str, ToolSpec], early: EarlyCalls, paid: Paid
    ) -> HeardReply:
        run, restarts = work.run, 0
        left_s = None if run.deadline_unix_s is None else run.deadline_unix_s - time.time()
        clock = asyncio.timeout(left_s)
        try:
            messages = _messages_for_model(run, paid.over, paid.reminder)
            if run.tally.has_media:
                messages = await self.images.put_back(messages, run.run_id)
            model = self.agents.model_of(run) or self.model
            async with clock, aclosing(_stream(model, run, messages, offered, paid)) as events:
                _tell_of_beginning(work, restarts)
                async for event in events:
                    if isinstance(event, ReplyComplete):
                        return HeardReply(event, restarts)
                    if isinstance(event, Restarted):
                        restarts += 1
                        log.info("reply_restarted", run_id=run.run_id, attempt=event.attempt)
                        _tell_of_beginning(work, restarts)
                    _pass_on(event, work, offered, early)
        except TimeoutError:
            # The model may raise TimeoutError of its own, which says nothing about the run's deadline.
            if clock.expired():
                raise RunTimedOut(TIMED_OUT) from None
            raise
        raise ModelReplyInvalid(f"{model.name} ended its reply without completing it")


async def _tell_what_is_left(work: RunAtWork, paid: Paid) -> None:
    """Write down, once of each limit, that it is nearly used up; and remind the model, where it is to know."""
    left = what_is_left(work.run, paid.reserved)
    if not left:
        return
    if news := tuple(each for each in left if each.name not in work.run.told_low):
        await work.journal.append(BudgetRanLow(left=news))
        if work.emit:
            work.emit(BudgetRunsLow(run_id=work.run.run_id, left=news))
    if work.run.terms.limits.tell_left and not paid.over:
        paid.reminder = (reminder(left),)


async def _stored(work: RunAtWork, paid: Paid, replied: ModelReplied, after: Run) -> Run:
    paid.fate = Fate.IN_DOUBT
    try:
        run = await work.journal.append(replied, after)
    except (RunIsOver, LostRun, Overtaken):
        paid.fate = Fate.UNSTORED
        raise
    paid.fate = Fate.STORED
    return run


def _stream(
    model: ChatModel, run: Run, messages: Sequence[Message], offered: Mapping[str, ToolSpec], paid: Paid
) -> AsyncGenerator[ModelEvent, None]:
    # A model that must call a tool in each turn never answers: `tool_choice` is for the first turn only.
    asked = run.terms.model_options
    options = {name: value for name, value in asked.items() if name != "tool_choice" or run.turn == 0}
    if paid.reserved is not None:
        options |= paid.reserved.bound_of(options)
    if not options:
        return model.stream(messages, list(offered.values()))
    return model.stream(messages, list(offered.values()), extra_body=options)


def _pass_on(event: ModelEvent, work: RunAtWork, offered: Mapping[str, ToolSpec], early: EarlyCalls) -> None:
    """Tell whoever looks on of a piece of the reply, and send a call that is complete."""
    if isinstance(event, TextDelta) and work.emit:
        work.emit(TextArrived(run_id=work.run.run_id, text=encodable(event.text)))
    elif isinstance(event, ThoughtDelta) and work.emit:
        work.emit(ThoughtArrived(run_id=work.run.run_id, text=encodable(event.text)))
    elif isinstance(event, CallDelta) and work.emit:
        work.emit(_arguments_arrived(work.run, event, offered))
    elif isinstance(event, CallComplete):
        early.add(event.call)


def _tell_of_beginning(work: RunAtWork, attempt: int) -> None:
    if work.emit:
        work.emit(ReplyBegan(run_id=work.run.run_id, turn=work.run.turn + 1, attempt=attempt))


def _arguments_arrived(run: Run, delta: CallDelta, offered: Mapping[str, ToolSpec]) -> CallArgumentsArrived:
    """For whoever looks: half a secret could not be masked, so of tools that have secrets no piece is shown.

    Nor of a name that nobody has: it may be a slip for one of them.
    """
    is_secret = delta.name not in offered or has_secrets(offered[delta.name].input_schema)
    return CallArgumentsArrived(
        run_id=run.run_id,
        index=delta.index,
        requested_id=encodable(delta.id),
        tool=encodable(delta.name),
        arguments_delta="" if is_secret else encodable(delta.arguments_delta),
    )


def _messages_for_model(run: Run, over: Reached | None, reminder: tuple[UserMessage, ...] = ()) -> Sequence[Message]:
    """What the model is told: the conversation, what is left or that it must answer now, and in which form."""
    schema = run.terms.output_schema
    messages = (*run.messages, *reminder) if over is None else (*run.messages, last_word(over))
    return messages if schema is None else (*messages, instruction(schema))


def _problem_with_answer(run: Run, said: AssistantMessage, lacks: Incomplete | None) -> str | None:
    """What is wrong with an answer that must fit a schema.

    One that was refused, withheld or cut off is told as that, and not asked for again.
    """
    if run.terms.output_schema is None or said.tool_calls or lacks in NO_SECOND_TRY:
        return None
    return problem_with(said.content, run.terms.output_schema)


def _must_be_fit(run: Run) -> None:
    """Raises AnswerUnfit for a run whose model was asked again and whose answer does not fit all the same."""
    complaint = run.messages[-1]
    if run.repairs > MAX_REPAIRS and isinstance(complaint, UserMessage):
        raise AnswerUnfit(str(complaint.content))
