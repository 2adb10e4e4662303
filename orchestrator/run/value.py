"""A run as a value: what has happened so far, what is owed next. Pure: no clock, no Redis, no await.

A run is the fold of its history. `Run.on(event)` is the only way it changes; a change that TRANSITIONS lacks is a bug
and raises. Recovery is the same fold over the stored events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

from pydantic import Field, JsonValue, TypeAdapter

from toolfleet.calls import Record, Returned, ToolResult
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run import approvals
from toolfleet.orchestrator.run.events import (
    Approval,
    ApprovalBelow,
    ApprovalGiven,
    BudgetRanLow,
    CallCancelRequested,
    CallRecord,
    CallsBack,
    CallsHandedOver,
    CallsParked,
    CallsSent,
    CallsStreamed,
    MessagesHeard,
    MessagesSaid,
    ModelReplied,
    Noted,
    QuestionAnswered,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.fault import Fault
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.limits import note_for
from toolfleet.orchestrator.run.refusals import denied, interrupted, left_open, never_called
from toolfleet.orchestrator.run.requested import asked_at, place_of, refused, requested, unless_sent
from toolfleet.orchestrator.run.saying import digest_of
from toolfleet.orchestrator.run.shared_state import merged
from toolfleet.orchestrator.run.states import TRANSITIONS, Change, State
from toolfleet.orchestrator.run.structured import parsed
from toolfleet.orchestrator.run.tally import Tally
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.transcript import NO_ENDS, tool_messages
from toolfleet.tracing.trace import Trace
from toolfleet.trusted import changed, trusted

T = TypeVar("T")

_turn_of: Final = attrgetter("turn")

WRAPPED_UP: Final = "budget"
"""Why a run is done whose model had to answer without the tools that it wanted."""

HANDED_OVER: Final = "handed over to the caller, who answers it in the next run"
"""What stands in the history for a call of the caller's own tool."""


class Run(Record):
    """One conversation being worked on."""

    run_id: str
    state: State = State.THINKING
    messages: tuple[Message, ...]
    unheard: tuple[UserMessage, ...] = Field(default=(), exclude_if=lambda unheard: not unheard)
    """What a person has said since its model was last asked, which reads it next; no part of `messages` yet."""
    said_before: dict[str, str] = Field(default_factory=dict, exclude=True, repr=False)
    """What was said under a key, as a digest, by that key."""
    is_interrupted: bool = Field(default=False, exclude_if=lambda is_it: not is_it)
    """Whether that is to be heard before any further call is made."""
    model: str = ""
    terms: RunTerms
    """The options that it was begun with."""
    values: dict[str, Any] = Field(default_factory=dict, repr=False)
    """What its tools share now: `terms.state`, with their updates."""
    deadline_unix_s: float | None = None
    parent_call_id: str | None = None
    depth: int = 0
    agent: str = ""
    started_unix_s: float = 0.0
    asked_as: dict[str, JsonValue] = Field(default_factory=dict, repr=False, exclude_if=lambda asked: not asked)
    """What the door was asked with that began it, in that door's words."""
    trace: Trace | None = Field(default=None, repr=False, exclude_if=lambda trace: trace is None)
    """The span that it has now."""
    versions: dict[str, int] = Field(default_factory=dict, exclude_if=lambda versions: not versions)
    """The versions of tools that it began with, and goes on with."""
    began_with: int = 0
    """How many of its messages it was begun with."""
    turn: int = 0
    offered: tuple[str, ...] | None = None
    """What the model was offered last, where that changes."""
    turns_before: int = 0
    """The turns that were taken before the user last spoke."""
    repairs: int = 0
    """How often the model was asked again for an answer that fits."""
    calls: tuple[CallRecord, ...] = ()
    streamed: tuple[CallRecord, ...] = ()
    """Calls of a reply that is still being written."""
    usage: Usage = Usage()
    """What its model has read and written, and those of its agents, once each run of theirs has ended."""
    spent_by_tools: dict[str, float] = Field(default_factory=dict, exclude_if=lambda spent: not spent)
    """What its tools have spent (`ctx.spend`), by tool, in US dollars; without those of its agents' runs."""
    told_below: frozenset[tuple[str, bool]] = Field(default=frozenset(), exclude=True, repr=False)
    """Of which calls of runs below it has been told that they wait for a person, or were decided about."""
    awaiting_below: tuple[CallRecord, ...] = ()
    """The calls of its agents' runs that a person has to decide about: known to whoever has asked `get` for the run."""
    answer: str | None = None
    incomplete: Incomplete | None = None
    """What the answer lacks; None for a whole one, and for a run that has no answer of its model's."""
    refusal: str | None = None
    """What the model said in place of an answer, where `incomplete` is `refusal` and it gave words."""
    reason: str | None = None
    """Why it has ended without an answer; of one that is done, `budget` where a limit has kept it from its tools."""
    over_limit: str | None = Field(default=None, exclude_if=lambda reason: reason is None)
    """The limit that its last reply has reached: it ends once the calls that were sent are back."""
    wraps_up: bool = Field(default=False, exclude_if=lambda wraps_up: not wraps_up)
    """Whether its model is asked for an answer before."""
    told_low: tuple[str, ...] = Field(default=(), exclude_if=lambda told: not told)
    """The limits of which it has been told that four fifths are used."""
    notes: dict[str, JsonValue] = Field(default_factory=dict, repr=False, exclude_if=lambda notes: not notes)
    """What interceptors have found out for it, by their names."""
    blocked: str = Field(default="", exclude_if=lambda blocked: not blocked)
    """Why an interceptor keeps it from going on."""
    fault: Fault | None = None
    """What kept its model from answering, where that is why it has failed."""
    service_tier: str = Field(default="", exclude_if=lambda tier: not tier)
    """With which priority the model's provider has served the last reply; "" where it does not say."""
    system_fingerprint: str = Field(default="", exclude_if=lambda fingerprint: not fingerprint)
    """Which set-up of the provider has served the last reply; "" where it does not say."""

    @cached_property
    def tally(self) -> Tally:
        """What its calls and messages come to. No field: each change makes the next one of it, as far as it changes."""
        return Tally.of(self.messages, self.calls, self.turns_before)

    @classmethod
    def start(cls, event: RunStarted) -> Run:
        """A run that has just begun."""
        beginning = {name: getattr(event, name) for name in _BEGINNING}
        return _own_run(**beginning, values=event.terms.state, began_with=len(event.messages))

    def on(self, event: RunEvent) -> Run:  # noqa: C901, PLR0911, PLR0912  # one line for each kind of event
        """The run after an event. Raises IllegalTransition when it cannot have happened now."""
        match event:
            case ModelReplied():
                return self._replied(event)
            case CallsStreamed():
                return self._streamed(event)
            case CallsSent():
                return self._sent(event)
            case CallsBack():
                return self._back(event)
            case CallsParked():
                return self._parked(event)
            case ApprovalGiven():
                return self._approved(event)
            case ApprovalBelow():
                return self._to(Change.APPROVAL_BELOW, told_below=self.told_below | {event.told_as})
            case CallCancelRequested():
                return self._to(Change.CALL_CANCEL_REQUESTED)
            case MessagesSaid():
                return self._said(event)
            case MessagesHeard():
                return self._heard()
            case QuestionAnswered():
                return self._answered(event)
            case SlowResultDelivered():
                return self._delivered(event)
            case RunAdopted(words=None):
                return self._to(Change.ADOPTED)
            case RunAdopted():
                return self._to(Change.ADOPTED, terms=self.terms.model_copy(update={"words": event.words}))
            case BudgetRanLow():
                told = (*self.told_low, *(each.name for each in event.left))
                return self._to(Change.BUDGET_RAN_LOW, told_low=told)
            case Noted():
                return self._noted(event)
            case RunResumed():
                return self._resumed(event)
            case CallsHandedOver():
                return self._handed_over()
            case RunStopped():
                return self._stopped(event)

    def answer_as(self, type_: type[T]) -> T:
        """The answer of a run with this `output_type`. Raises ValueError when there is none, or none of this type."""
        if self.answer is None:
            raise ValueError(f"run {self.run_id} has no answer: it is {self.state} ({self.reason})")
        try:
            return TypeAdapter(type_).validate_python(parsed(self.answer))
        except ValueError as error:
            if self.shortcoming is None:
                raise
            raise ValueError(f"run {self.run_id} has no whole answer. {self.shortcoming}") from error

    @property
    def shortcoming(self) -> str | None:
        """What its answer lacks, as a sentence for people, with the model's own words; None for a whole one."""
        if self.incomplete is None:
            return None
        return f"{self.incomplete.told} It said: {self.refusal}" if self.refusal else self.incomplete.told

    @property
    def is_answered_by_tools(self) -> bool:
        """Whether its answer is what tools returned that are declared `return_direct`, and not its model's."""
        return self.state is State.DONE and isinstance(self.messages[-1], ToolMessage) and not self.handed_over

    @property
    def calls_owed(self) -> tuple[CallRecord, ...]:
        """The calls of the last reply that have no result yet."""
        return tuple([call for call in self._last_calls if call.result is None])

    def is_callers(self, call: CallRecord) -> bool:
        """Whether the call is one of the caller's own tools, and whole."""
        return call.refusal is None and any(call.tool == spec.name for spec in self.terms.client_tools)

    @property
    def only_callers_calls_left(self) -> bool:
        """Whether every call that is owed is for the caller to answer."""
        if not self.terms.client_tools:
            return False
        owed = self.calls_owed
        return bool(owed) and all(self.is_callers(call) for call in owed)

    @property
    def handed_over(self) -> tuple[CallRecord, ...]:
        """The calls that the run ended with, for its caller to answer; none for a run that ended otherwise."""
        if self.state is not State.DONE:
            return ()
        return tuple(call for call in self._last_calls if self.is_callers(call))

    @property
    def replies(self) -> tuple[AssistantMessage, ...]:
        """What its model has said in each of its turns, without the requests that it has not made itself."""
        asked = {call.requested_id for call in self.calls}
        own = (message for message in self.messages[self.began_with :] if isinstance(message, AssistantMessage))
        return tuple(reply for reply in own if not reply.tool_calls or reply.tool_calls[0].id in asked)

    @property
    def recent_calls(self) -> tuple[CallRecord, ...]:
        """The calls that were asked for since the user last spoke."""
        return self.calls[self._first_of(self.turns_before + 1) :]

    @property
    def calls_under_way(self) -> tuple[CallRecord, ...]:
        """The calls that somebody still works on, of any turn."""
        return tuple(call for call in (*self.calls, *self.streamed) if call.is_under_way)

    @property
    def calls_that_may_have_begun(self) -> tuple[CallRecord, ...]:
        """The calls without a known end that somebody may work on, noted as sent or not: those to ask after at the end.

        A call is on its way a moment before that is noted, and who was to note it may be lost.
        """
        return tuple(call for call in (*self.calls, *self.streamed) if call.is_under_way or self._may_be_sent(call))

    @property
    def has_sent_calls(self) -> bool:
        """Whether any call of it may have had an effect: noted as sent, answered, or open when the run ended."""
        return any(
            call.deadline_unix_s is not None or call.is_left_open or isinstance(call.result, Returned)
            for call in (*self.calls, *self.calls_that_may_have_begun)
        )

    def _may_be_sent(self, call: CallRecord) -> bool:
        """Whether a call without result that is not noted as sent may have been sent all the same."""
        if call.result is not None or call.refusal is not None or self.is_callers(call):
            return False
        if call.turn > self.turn:
            return call.is_sending  # of a reply that is still being written, each is announced before it goes
        awaits_a_person = call.awaits_approval and call.approval is None
        return call.turn == self.turn and self.state is State.CALLING and not awaits_a_person

    @property
    def open_slow_calls(self) -> tuple[CallRecord, ...]:
        """The submitted calls whose results the model has not seen."""
        return tuple([self.calls[at] for at in sorted(self.tally.open_slow)])

    @property
    def tasks(self) -> dict[str, CallRecord]:
        """The calls that became tasks, by the handle that the model or a caller has of them; of several the last."""
        return {handle: self.calls[places[-1]] for handle, places in self.tally.tasks.items()}

    @property
    def awaiting_approval(self) -> tuple[CallRecord, ...]:
        """The calls that a person has to decide about: its own, and those of its agents as far as they are known."""
        own = tuple([call for call in self.calls_owed if call.awaits_approval and call.approval is None])
        return own + self.awaiting_below

    @property
    def in_background(self) -> tuple[CallRecord, ...]:
        """The calls that are owed of which its model has asked for a handle at once."""
        return tuple([call for call in self.calls_owed if call.is_in_background])

    @property
    def calls_to_send(self) -> tuple[CallRecord, ...]:
        """The calls of the last reply that nobody has and nobody has to decide about."""
        return tuple(
            call
            for call in self.calls_owed
            if call.deadline_unix_s is None
            and (call.approval is not None or not call.awaits_approval)
            and not self.is_callers(call)
        )

    def messages_with(self, results: Mapping[str, ToolResult], ended: Mapping[str, str] = NO_ENDS) -> tuple[Any, ...]:
        """The messages of the last reply's calls once `results` are in; empty while others are still out.

        `ended` says as which of `Words` calls have ended with the run.
        """
        last = self._last_calls
        known = {**{call.call_id: call.result for call in last if call.result is not None}, **results}
        if not known.keys() >= {call.call_id for call in last}:
            return ()
        repeated = self.tally.asked
        messages = tool_messages(last, known, self.terms.words, ended=ended, is_interrupted=self.is_interrupted)
        return tuple(
            [
                changed(message, content=message.content + note)
                if isinstance(known[call.call_id], Returned) and (note := note_for(call, repeated))
                else message
                for call, message in zip(last, messages, strict=True)
            ]
        )

    @property
    def _last_calls(self) -> tuple[CallRecord, ...]:
        return self.calls[self._first_of(self.turn) :]

    def _first_of(self, turn: int) -> int:
        """The place of the first call of a turn, or where it would be: calls stand in the order of their turns."""
        return bisect_left(self.calls, turn, key=_turn_of)

    def _places(self, call_ids: Iterable[str]) -> Iterator[int]:
        """Where these calls stand, without those that the run has not asked for. By their ids: none is searched for."""
        firsts: dict[int, int] = {}
        for call_id_ in call_ids:
            turn, place = asked_at(call_id_)
            if turn not in firsts:
                firsts[turn] = self._first_of(turn)
            at = firsts[turn] + place
            if 0 <= at < len(self.calls) and self.calls[at].call_id == call_id_:
                yield at

    def _replied(self, event: ModelReplied) -> Run:
        turn = self.turn + 1
        asked = refused(self._asked(event.message, event.masked), event)
        if self.is_interrupted:
            asked = unless_sent(asked, interrupted)
        if asked:
            change = Change.MODEL_ASKED_FOR_TOOLS
        elif self.unheard:
            change = Change.ANSWERED_TOO_SOON
        elif self.open_slow_calls:
            change = Change.MODEL_ANSWERED_EARLY
        elif event.problem is not None:
            change = Change.ANSWER_REFUSED
        else:
            change = Change.MODEL_ANSWERED
        complaint = (UserMessage(content=event.problem or ""),) if change is Change.ANSWER_REFUSED else ()
        tally = self.tally.with_messages((event.message, *complaint))
        return self._to(
            change,
            tally=tally.with_calls(asked) if asked else tally,
            turn=turn,
            offered=event.offered,
            repairs=self.repairs + len(complaint),
            messages=(*self.messages, event.message, *complaint),
            calls=self.calls + asked,
            streamed=(),
            usage=self.usage + event.usage,
            # Whoever has answered in vain without tools is not given them again.
            over_limit=self.over_limit if event.is_last and not asked else event.over_limit,
            wraps_up=self.wraps_up if event.is_last and not asked else event.wraps_up,
            reason=WRAPPED_UP if event.is_last and change is Change.MODEL_ANSWERED else None,
            answer=event.message.content if change is Change.MODEL_ANSWERED else None,
            incomplete=event.incomplete if change is Change.MODEL_ANSWERED else None,
            refusal=(event.message.refusal or None) if change is Change.MODEL_ANSWERED else None,
            service_tier=event.service_tier,
            system_fingerprint=event.system_fingerprint,
        )

    def _asked(self, message: AssistantMessage, masked: Collection[str]) -> tuple[CallRecord, ...]:
        """The calls of the whole reply that is due: those that were streamed as they stand, then the rest."""
        begins = len(self.streamed)
        rest = message.tool_calls[begins:]
        return self.streamed + requested(self.run_id, self.turn + 1, rest, begins=begins, masked=masked)

    def _streamed(self, event: CallsStreamed) -> Run:
        fresh = requested(
            self.run_id,
            self.turn + 1,
            event.message.tool_calls,
            begins=len(self.streamed),
            masked=event.masked,
            sending=() if self.is_interrupted else event.sending,
        )
        if self.is_interrupted:
            fresh = unless_sent(fresh, interrupted)
        return self._to(Change.CALLS_STREAMED, streamed=self.streamed + fresh)

    def _sent(self, event: CallsSent) -> Run:
        if self.streamed:
            return self._sent_early(event)
        if self.state is State.THINKING:
            raise IllegalTransition(f"run {self.run_id} has no calls that could have been sent")
        return self._to(Change.CALLS_SENT, **self._updated(self._as_sent(event)))

    def _as_sent(self, event: CallsSent) -> dict[str, dict[str, Any]]:
        """What changes of calls that were sent, or that wait for a person."""
        self._must_owe({*event.deadlines_unix_s, *event.awaiting_approval})
        awaiting = set(event.awaiting_approval)
        changes: dict[str, dict[str, Any]] = {
            call.call_id: {"awaits_approval": True, "digest": approvals.digest_of(call)}
            for call in (self.calls_owed if awaiting else ())
            if call.call_id in awaiting
        }
        direct, agents, background = set(event.direct), set(event.agents), set(event.background)
        for call_id_, deadline_unix_s in event.deadlines_unix_s.items():
            changes[call_id_] = {
                "deadline_unix_s": deadline_unix_s,
                "is_direct": call_id_ in direct,
                "is_agents": call_id_ in agents,
            }
            if call_id_ in background:
                changes[call_id_]["is_in_background"] = True
        return changes

    def _sent_early(self, event: CallsSent) -> Run:
        streamed, direct = list(self.streamed), set(event.direct)
        for call_id_, deadline_unix_s in event.deadlines_unix_s.items():
            # By its place, not by a search: this happens many times while a long reply is written.
            at = place_of(call_id_)
            if at >= len(streamed) or streamed[at].call_id != call_id_:
                raise IllegalTransition(f"run {self.run_id} has not been asked for {call_id_}")
            streamed[at] = changed(streamed[at], deadline_unix_s=deadline_unix_s, is_direct=call_id_ in direct)
        return self._to(Change.CALLS_SENT, streamed=tuple(streamed))

    def _back(self, event: CallsBack) -> Run:
        owed = self._must_owe(event.results)
        changes = {} if event.sent is None else self._as_sent(event.sent)
        for call_id_, result in event.results.items():
            changes.setdefault(call_id_, {})["result"] = result
        changes |= {call_id_: {"late_result": result} for call_id_, result in event.fetched.items()}
        fields = self._updated(changes, messages=event.messages)
        if len(event.results) < len(owed):
            return self._to(Change.SOME_CALLS_BACK, **fields)
        calls: tuple[CallRecord, ...] = fields["calls"]
        last = calls[self._first_of(self.turn) :]
        fetched = [calls[at] for at in sorted(self._places(event.fetched))] if event.fetched else []
        values = self._values_after([call.late_result for call in fetched] + [call.result for call in last])
        direct = [call.result for call in last if call.is_direct and isinstance(call.result, Returned)]
        if len(direct) < len(last) or self.unheard:
            return self._to(Change.ALL_CALLS_BACK, values=values, **fields)
        if fields["tally"].open_slow:
            return self._to(Change.RESULTS_BEFORE_SLOW_ONES, values=values, **fields)
        answer = "\n\n".join(result.content for result in direct)
        return self._to(Change.RESULTS_ARE_THE_ANSWER, values=values, answer=answer, **fields)

    def _parked(self, event: CallsParked) -> Run:
        self._must_owe(event.handles)
        if self.calls_to_send:
            # Somebody has approved or denied one meanwhile: resting now, the run would never look at it.
            raise IllegalTransition(f"run {self.run_id} has calls to send, and cannot rest")
        changes = {call_id_: {"handle": handle} for call_id_, handle in event.handles.items()}
        return self._to(Change.ONLY_SLOW_CALLS_LEFT, **self._updated(changes))

    def _approved(self, event: ApprovalGiven) -> Run:
        if event.call_id not in {call.call_id for call in self.awaiting_approval}:
            raise IllegalTransition(f"call {event.call_id} does not wait for approval")
        [call] = [call for call in self.calls if call.call_id == event.call_id]
        if event.approval.digest not in {"", call.digest}:
            raise IllegalTransition(f"call {event.call_id} has other arguments than those that were decided about")
        change: dict[str, Any] = {"approval": event.approval}
        if not event.approval.granted:
            change["refusal"] = denied(call.tool, event.approval.reason)
        elif event.approval.arguments is not None:
            edited = event.approval.arguments
            change |= {"arguments": edited, "kept_as": event.kept_as}
            change["digest"] = approvals.digest_of(call, edited)
        run = self._to(Change.APPROVAL_GIVEN, **self._updated({event.call_id: change}))
        # Another call may be the same as the edited one, and none as what it was: rarely enough to count anew.
        return changed(run, tally=Tally.of(run.messages, run.calls, run.turns_before)) if "arguments" in change else run

    def _said(self, event: MessagesSaid) -> Run:
        undecided = self.awaiting_approval if event.interrupt else ()
        reason = "the user has said something else instead"
        denial = Approval(granted=False, reason=reason, by=event.by)
        changes = {call.call_id: {"approval": denial, "refusal": denied(call.tool, reason)} for call in undecided}
        return self._to(
            Change.INTERRUPTED if undecided else Change.MESSAGES_SAID,
            unheard=self.unheard + event.messages,
            said_before={**self.said_before, event.key: digest_of(event.messages)} if event.key else self.said_before,
            is_interrupted=self.is_interrupted or event.interrupt,
            **(self._updated(changes) if changes else {}),
        )

    def _heard(self) -> Run:
        if not self.unheard or self.streamed:
            raise IllegalTransition(f"run {self.run_id} has nothing that could be heard now")
        return self._to(
            Change.MESSAGES_HEARD,
            messages=self.messages + self.unheard,
            unheard=(),
            is_interrupted=False,
            tally=self.tally.since_user_spoke().with_messages(self.unheard),
            turns_before=self.turn,
            repairs=0,
        )

    def _answered(self, event: QuestionAnswered) -> Run:
        call = self.asked_for(event.call_id)
        if call is None or not (call.result is None or call.is_slow_and_open):
            raise IllegalTransition(f"call {event.call_id} does not go on, and asks nothing")
        if any(each.key == event.answered.key for each in call.answers):
            raise IllegalTransition(f"question {event.answered.key} of call {event.call_id} is answered already")
        answers = (*call.answers, event.answered)
        if call.turn <= self.turn:
            return self._to(Change.QUESTION_ANSWERED, **self._updated({event.call_id: {"answers": answers}}))
        at = place_of(event.call_id)  # of a reply that is still being written
        streamed = (*self.streamed[:at], changed(call, answers=answers), *self.streamed[at + 1 :])
        return self._to(Change.QUESTION_ANSWERED, streamed=streamed)

    def asked_for(self, call_id_: str) -> CallRecord | None:
        """A call of the run, also of a reply that is still being written; None for any other."""
        for at in self._places([call_id_]):
            return self.calls[at]
        return next((call for call in self.streamed if call.call_id == call_id_), None)

    def _delivered(self, event: SlowResultDelivered) -> Run:
        if self.state is not State.WAITING and not self.only_callers_calls_left:
            raise IllegalTransition(f"run {self.run_id} is {self.state} and has other things to do than to deliver")
        # Before a reply that is about to be handed over: its calls and their answers must stay together.
        at = len(self.messages) if self.state is State.WAITING else self._last_reply_at
        changes = {call_id_: {"late_result": result} for call_id_, result in event.results.items()}
        fields = self._updated(changes, messages=event.messages)
        fields["messages"] = self.messages[:at] + event.messages + self.messages[at:]
        return self._to(Change.SLOW_RESULT_DELIVERED, values=self._values_after(event.results.values()), **fields)

    def _values_after(self, results: Iterable[ToolResult | None]) -> dict[str, Any]:
        """What tools share, with what these returned merged in, in the order of the calls."""
        values = self.values
        for result in results:
            if isinstance(result, Returned) and result.state:
                values = merged(values, result.state, self.terms.merging)
        return values

    def _noted(self, event: Noted) -> Run:
        notes = self.notes if event.value is None else {**self.notes, event.name: event.value}
        blocked = self.blocked or event.blocks
        return self._to(Change.NOTED, notes=notes, blocked=blocked, usage=self.usage + event.usage)

    def _resumed(self, event: RunResumed) -> Run:
        return self._to(
            Change.RESUMED,
            terms=self.terms if event.subject is None else self.terms.model_copy(update={"subject": event.subject}),
            messages=self.messages + event.messages,
            tally=self.tally.since_user_spoke().with_messages(event.messages) if event.messages else self.tally,
            turns_before=self.turn if event.messages else self.turns_before,
            repairs=0,
            answer=None,
            incomplete=None,
            refusal=None,
            reason=None,
            over_limit=None,
            wraps_up=False,
            blocked="",
            fault=None,
            trace=event.trace or self.trace,
        )

    def _handed_over(self) -> Run:
        """Every one of these calls gets a message all the same: a history with a gap is good for nothing."""
        if not self.only_callers_calls_left:
            raise IllegalTransition(f"run {self.run_id} owes calls that are not its caller's")
        if self.open_slow_calls:
            raise IllegalTransition(f"run {self.run_id} has slow calls whose results were not delivered")
        results = {call.call_id: Returned(content=HANDED_OVER) for call in self.calls_owed}
        return self._to(
            Change.HANDED_OVER,
            answer=self.messages[self._last_reply_at].content,
            **self._updated(
                {call_id_: {"result": result} for call_id_, result in results.items()},
                messages=(*self.messages_with(results), *self.unheard),
            ),
            unheard=(),
            is_interrupted=False,
        )

    @property
    def _last_reply_at(self) -> int:
        """The place of the model's last reply in the conversation. Only for runs whose model has replied."""
        return next(
            at for at in range(len(self.messages) - 1, -1, -1) if isinstance(self.messages[at], AssistantMessage)
        )

    @property
    def half_a_reply(self) -> ModelReplied:
        """What was streamed of a reply whose rest nobody has, as the reply that it is once some of it was sent."""
        asked = tuple(
            RequestedCall(id=each.requested_id, name=each.tool, arguments=each.arguments) for each in self.streamed
        )
        return ModelReplied(message=AssistantMessage(tool_calls=asked))

    def _with_what_was_sent_early(self) -> Run:
        """The run with half a reply as its reply, if any of it may have been sent."""
        is_sent = any(call.is_sending or call.deadline_unix_s is not None for call in self.streamed)
        return self._replied(self.half_a_reply) if is_sent else self

    def _stopped(self, event: RunStopped) -> Run:
        """Every open call gets its message, so that the history can be used for a next run.

        What may have begun is told so; only what certainly was not sent is told as not called.
        """
        run = self._with_what_was_sent_early()
        begun = {call.call_id for call in self.calls_that_may_have_begun}
        results = {
            call.call_id: event.results.get(call.call_id)
            or call.refusal
            or (left_open if call.call_id in begun else never_called)(call.tool, event.reason)
            for call in run.calls_owed
        }
        slow = {call.call_id for call in run.open_slow_calls}
        late = {call_id_: result for call_id_, result in event.results.items() if call_id_ in slow}
        changes: dict[str, dict[str, Any]] = {
            call_id_: {"result": result, "is_left_open": call_id_ in begun and call_id_ not in event.results}
            for call_id_, result in results.items()
        }
        changes |= {call_id_: {"late_result": result} for call_id_, result in late.items()}
        # What was said and not heard is said all the same: whoever goes on with the conversation reads it.
        ended = {
            call.call_id: "left_open" if call.call_id in begun else "not_called"
            for call in run.calls_owed
            if call.refusal is None and call.call_id not in event.results
        }
        said = (*(run.messages_with(results, ended) if results else ()), *event.messages, *run.unheard)
        fields = run._updated(changes, messages=said)
        last = [call.result for call in fields["calls"][run._first_of(run.turn) :] if results]
        return run._to(
            Change(event.state),
            reason=event.reason,
            fault=event.fault,
            streamed=(),
            unheard=(),
            is_interrupted=False,
            values=run._values_after([*late.values(), *last]),
            **fields,
        )

    def _must_owe(self, call_ids: Collection[str]) -> set[str]:
        owed = {call.call_id for call in self.calls_owed}
        if not owed.issuperset(call_ids):
            raise IllegalTransition(f"run {self.run_id} owes {sorted(owed)}, not {sorted(call_ids)}")
        return owed

    def _updated(self, changes: Mapping[str, Mapping[str, Any]], messages: tuple[Message, ...] = ()) -> dict[str, Any]:
        """The fields that are others once these calls are changed, and these messages said. Looks at no other call.

        What runs of agents have used is added when their result comes.
        """
        calls, tally, usage = list(self.calls), self.tally.with_messages(messages), self.usage
        by_tool = self.spent_by_tools
        for at in self._places(changes):
            before = calls[at]
            call = calls[at] = changed(before, **changes[before.call_id])
            tally = tally.with_change(at, before, call, is_recent=call.turn > self.turns_before)
            if (spent := call.spent) is not None and before.spent is None:
                usage += Usage(input_tokens=spent.input_tokens, output_tokens=spent.output_tokens)
                if not call.is_agents:
                    by_tool = {**by_tool, call.tool: by_tool.get(call.tool, 0.0) + spent.cost}
        fields = {"calls": tuple(calls), "tally": tally, "usage": usage, "messages": self.messages + messages}
        return fields if by_tool is self.spent_by_tools else {**fields, "spent_by_tools": by_tool}

    def _to(self, change: Change, **fields: Any) -> Run:
        state = TRANSITIONS[self.state].get(change)
        if state is None:
            raise IllegalTransition(f"run {self.run_id} is {self.state}; {change!r} cannot happen now")
        return changed(self, state=state, **fields)


_own_run: Final = trusted(Run)
_BEGINNING: Final = tuple(name for name in RunStarted.model_fields if name in Run.model_fields)
"""What a run has of its first event."""
