"""One reply of the model: asked for, heard piece by piece, and stored before anything it asks for is done.

What is complete of a reply may be sent before the rest has come (`early.py`). From that moment the reply is never asked
for again: another one could ask for other calls than those that have run.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.messages import AssistantMessage, Message, UserMessage
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.budgets.spending import Fate, Reserved, Spending, what_is_left
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.errors import LostRun, ModelReplyInvalid, Overtaken, RunIsOver
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.early import EarlyCalls
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.loop.in_time import in_time
from toolfleet.orchestrator.loop.preparing import NOTHING, Prepared, prepared, reviewed
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.loop.telling import Telling
from toolfleet.orchestrator.models.encodable import encodable_reply
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    ChatModel,
    ModelEvent,
    ReplyComplete,
    Restarted,
    provider_of,
    provider_tools_of,
)
from toolfleet.orchestrator.run.call_ids import DistinctIds
from toolfleet.orchestrator.run.events import BudgetRanLow, ModelReplied, Noted, RunEvent
from toolfleet.orchestrator.run.incomplete import NO_SECOND_TRY, Incomplete, lacking
from toolfleet.orchestrator.run.limits import Reached, beyond, last_word, within_limits, without
from toolfleet.orchestrator.run.nearly_spent import reminder
from toolfleet.orchestrator.run.structured import instruction, problem_with
from toolfleet.orchestrator.run.updates import BudgetRunsLow, CallsRequested
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.offer import Offering
from toolfleet.points import Point, reached
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.orchestrator")

MAX_REPAIRS: Final = 1
"""How often a model is asked again for an answer that fits its schema."""


class AnswerUnfit(ToolfleetError):
    """The model did not give its answer in the form that was asked for, twice."""


@dataclass(frozen=True, slots=True)
class HeardReply:
    """A whole reply, and how often it was begun anew on the way."""

    reply: ReplyComplete
    restarts: int
    blocked: Noted | None = None
    """What is written down instead, where an interceptor has found that nobody may see it."""


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
    spans: RunSpans | None = None

    async def ask(self, work: RunAtWork, over: Reached | None = None) -> None:
        """Store one reply of the model; its last, without tools, where the run is over a limit.

        Where an interceptor has kept the run from going on, that is noted, and no reply is stored.
        Raises RunTimedOut, AnswerUnfit, BudgetSpent, UnknownPrice, and what the model raises.
        """
        if work.run.streamed:
            await work.journal.append(*within_limits(work.run, work.run.half_a_reply, time.time()))
            return
        _must_be_fit(work.run)  # whoever stored the last answer may have been lost right after
        offered, choice = await self.offering.for_model(work.run)
        asked = await prepared(work, self.scopes.chain(work.run), NOTHING if over else offered)
        if asked is None:
            return
        paid = await self._reserved(work.run, asked, over)
        try:
            run = await self._store_reply(work, offered, choice, asked, paid)
        finally:
            if paid.reserved is not None:
                await self.spending.settle(work.run, paid.reserved, paid.reply, paid.fate)
        if run.blocked:
            return
        _must_be_fit(run)
        if work.emit and run.calls_owed:
            work.emit(CallsRequested(run_id=run.run_id, turn=run.turn, calls=len(run.calls_owed)))

    async def _reserved(self, run: Run, asked: Prepared, over: Reached | None) -> Paid:
        """What the budgets say of the next reply. Who asks for it books what it has come to, whatever happens."""
        if not self.spending.accounts_of(run):
            return Paid(None, over)
        model, messages = self.agents.model_of(run) or self.model, _messages_for_model(run, asked, over)
        async with in_time(run):
            reserved, spent = await self.spending.reserve(run, model.name, messages, asked.tools, is_last=bool(over))
        return Paid(reserved, over or spent)

    async def _store_reply(
        self,
        work: RunAtWork,
        offered: Mapping[str, ToolSpec],
        choice: tuple[str, ...] | None,
        asked: Prepared,
        paid: Paid,
    ) -> Run:
        """Hear a reply and store it, or that an interceptor has kept it back; the run after that."""
        if paid.over:
            offered, asked = {}, replace(asked, tools={})
        await _tell_what_is_left(work, paid)
        figures = RUNS.by_model[(self.agents.model_of(work.run) or self.model).name]
        with figures.timed():
            heard = await self._hear_reply(work, offered, asked, paid)
        figures.add_reply(heard.reply.usage.input_tokens, heard.reply.usage.output_tokens)
        reached(Point.REPLY_RECEIVED, work.run.run_id)
        if heard.blocked is not None:
            return await _stored(work, paid, heard.blocked.model_copy(update={"usage": heard.reply.usage}))
        run = await self._record_reply(work, heard, offered, choice, paid)
        reached(Point.REPLY_STORED, run.run_id)
        return run

    async def _hear_reply(
        self, work: RunAtWork, offered: Mapping[str, ToolSpec], asked: Prepared, paid: Paid
    ) -> HeardReply:
        """The reply, once it is whole and nothing is being sent for it any more."""
        mask = partial(self._mask_secrets, work.run, offered, DistinctIds(work.run.tally.ids))
        early = EarlyCalls(work.journal, self.services, partial(self.scopes.for_early_calls, work, offered), mask)
        if paid.reserved or paid.over or asked.chain.around_model or work.run.terms.calls_at_a_time is not None:
            early.forbid()
        telling = Telling(work, asked.chain, offered)
        try:
            heard = await self._listen_traced(work, asked, telling, early, paid)
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

    async def _listen_traced(
        self, work: RunAtWork, asked: Prepared, telling: Telling, early: EarlyCalls, paid: Paid
    ) -> HeardReply:
        if self.spans is None:
            return await self._listen(work, asked, telling, early, paid)
        model = self.agents.model_of(work.run) or self.model
        with self.spans.chat(work.run, provider_of(model), model.name, asked.tools) as chat:
            heard = await self._listen(work, asked, telling, early, paid)
            chat.heard(heard.reply)
        return heard

    async def _listen(
        self, work: RunAtWork, asked: Prepared, telling: Telling, early: EarlyCalls, paid: Paid
    ) -> HeardReply:
        run, restarts = work.run, 0
        model = self.agents.model_of(run) or self.model
        async with in_time(run):
            messages = _messages_for_model(run, asked, paid.over, paid.reminder)
            if run.tally.has_media:
                messages = await self.images.put_back(messages, run.run_id)
            async with aclosing(_stream(model, run, messages, asked.tools, paid)) as events:
                telling.begin(restarts)
                async for event in events:
                    if isinstance(event, ReplyComplete):
                        return await _heard(run, event, restarts, asked, telling)
                    if isinstance(event, Restarted):
                        restarts += 1
                        log.info("reply_restarted", run_id=run.run_id, attempt=event.attempt)
                        telling.begin(restarts)
                    telling.tell(event)
                    if isinstance(event, CallComplete):
                        early.add(event.call)
        raise ModelReplyInvalid(f"{model.name} ended its reply without completing it")


async def _heard(run: Run, reply: ReplyComplete, restarts: int, asked: Prepared, telling: Telling) -> HeardReply:
    """The reply as the interceptors leave it: of one that they keep back, nobody is told a word."""
    if not asked.chain.around_model:
        return HeardReply(reply, restarts)
    review = await reviewed(run, asked, reply.message)
    usage = reply.usage + review.usage
    if review.blocked is not None:
        nothing = reply.message.model_copy(update={"content": "", "thoughts": "", "refusal": ""})
        return HeardReply(replace(reply, message=nothing, usage=usage), restarts, review.blocked)
    telling.end(review.message)
    return HeardReply(replace(reply, message=review.message, usage=usage), restarts)


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


async def _stored(work: RunAtWork, paid: Paid, event: RunEvent, after: Run | None = None) -> Run:
    paid.fate = Fate.IN_DOUBT
    try:
        run = await work.journal.append(event, after)
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
    if (paid.over or asked.get("tool_choice") == "none") and provider_tools_of(model):
        options["tool_choice"] = "none"  # which tools the provider offers itself is not ours to leave out
    if paid.reserved is not None:
        options |= paid.reserved.bound_of(options)
    if not options:
        return model.stream(messages, list(offered.values()))
    return model.stream(messages, list(offered.values()), extra_body=options)


def _messages_for_model(
    run: Run, asked: Prepared, over: Reached | None, reminder: tuple[UserMessage, ...] = ()
) -> Sequence[Message]:
    """What the model is told: the conversation, what is left or that it must answer now, and in which form."""
    schema = run.terms.output_schema
    messages = (*asked.messages, *reminder) if over is None else (*asked.messages, last_word(over))
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
