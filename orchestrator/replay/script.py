"""What was written down of a run, as a replay goes through it: what others and the clock brought, what its owner did.

Events of the first kind are taken as they stand where they stand (a person's word, an orchestrator lost, calls that
were sent while a reply was still being written). Those of the second kind the loop has to come to again.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from toolfleet.calls import Failed, Returned, Submitted, ToolCall, ToolResult
from toolfleet.errors import ToolfleetError
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.errors import IllegalTransition, LostRun, Overtaken, RunIsOver
from toolfleet.orchestrator.models.protocol import FinishReason, ModelEvent, OfferedTool, ReplyComplete
from toolfleet.orchestrator.replay.differences import Difference, of_events
from toolfleet.orchestrator.replay.offline import OFFLINE
from toolfleet.orchestrator.replay.recording import Recording
from toolfleet.orchestrator.run.events import (
    ApprovalBelow,
    ApprovalGiven,
    BudgetRanLow,
    CallCancelRequested,
    CallRecord,
    CallsBack,
    CallsParked,
    CallsSent,
    CallsStreamed,
    MessagesSaid,
    ModelReplied,
    Noted,
    QuestionAnswered,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStopped,
    SlowResultDelivered,
    apart,
)
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_state import CallState, result_state
from toolfleet.orchestrator.status.handles import Status, Tasks
from toolfleet.orchestrator.store.chain import beginning
from toolfleet.orchestrator.store.history import Stored
from toolfleet.orchestrator.store.journal import Journal
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.builtin import SEARCH_TOOLS
from toolfleet.tool import ToolSpec

GIVEN: Final = (
    ApprovalGiven,
    ApprovalBelow,
    CallCancelRequested,
    MessagesSaid,
    QuestionAnswered,
    RunAdopted,
    RunResumed,
    CallsStreamed,
    Noted,
)
"""What nobody decides here: people, other orchestrators, how fast a model has written, and what interceptors found out
of models of theirs."""

DECIDED: Final = re.compile(r"the limit of .+ is reached(?! by this run and its agents)|loop$")
"""Why a run ends whose own history says so; anything else that ends one (a fault, the time) is given as well."""

SHARED: Final = re.compile(r"the budget of |the limit of .+ is reached by this run and its agents")
"""What is said of budgets that a run shares with others: how they stood is in no history."""


class Diverged(LostRun):
    """The loop has come to something else than what was written down, so what came then says nothing any more."""


class RecordingEnds(LostRun):
    """All that was written down is through."""


class RecordedFailure(ToolfleetError):
    """What has ended the run, and was no decision of its orchestrator."""


class Choice(NamedTuple):
    """How many events were known, and how few could have been."""

    known: int
    least: int


def other_choices(made: Sequence[Choice]) -> list[int] | None:
    """Return what is to be chosen in another attempt: one event less at the last place where that can be; or None."""
    for at in range(len(made) - 1, -1, -1):
        if made[at].known > made[at].least:
            return [*(choice.known for choice in made[:at]), made[at].known - 1]
    return None


class Script:
    """The history of one run, and how far a replay of it is."""

    def __init__(self, recording: Recording, choices: Sequence[int] = ()) -> None:
        self.events = recording.events
        self._places = recording.places
        self.at = 0
        self.differences: list[Difference] = []
        self.made: list[Choice] = []
        """What was chosen so far: how much of what others brought was known to the owner when it began a step."""
        self._choices = choices

    @property
    def next(self) -> RunEvent | None:
        """What stands next in the history; None at its end."""
        return self.events[self.at] if self.at < len(self.events) else None

    @property
    def through(self) -> int:
        """How many events of the history are through as a whole, its first one not counted."""
        return (self._places[-1] if self._places else 0) if self.next is None else self._places[self.at] - 1

    def catch_up(self, run: Run) -> Run:
        """Return the run with all that others brought next, as an owner hears of it that writes."""
        while (event := self.next) is not None and is_given(event, run):
            run = self._given(run, event)
        return run

    def is_adopted_next(self, run: Run) -> bool:
        """Whether another orchestrator begins from among what others brought next."""
        return any(isinstance(event, RunAdopted) for event in self._brought(run))

    def read(self, run: Run) -> Run:
        """Return the run as an owner reads it that begins with it: how much was there by then is in no history.

        What was there before it was adopted was, and nothing that was streamed of a reply that it had still to ask for.
        """
        brought = self._brought(run)
        least = max((at for at, event in enumerate(brought, 1) if isinstance(event, RunAdopted)), default=0)
        streamed = (at for at, event in enumerate(brought) if at >= least and isinstance(event, CallsStreamed))
        most = next(streamed, len(brought))
        for event in brought[: self._choose(least, most)]:
            run = self._given(run, event)
        return run

    def _brought(self, run: Run) -> list[RunEvent]:
        found = []
        is_streaming = bool(run.streamed)
        for event in self.events[self.at :]:
            is_streaming = is_streaming or isinstance(event, CallsStreamed)
            if not (is_streaming if isinstance(event, CallsSent) else is_given(event, run)):
                break
            found.append(event)
        return found

    def _choose(self, least: int, most: int) -> int:
        made = len(self.made)
        chosen = self._choices[made] if made < len(self._choices) else most
        self.made.append(Choice(chosen, least))
        return chosen

    def _given(self, run: Run, event: RunEvent) -> Run:
        try:
            after = run.on(event)
        except IllegalTransition as error:
            self.diverge(run, event.type, f"this cannot happen now: {error}")
        self.at += 1
        return after

    def take(self, run: Run, found: RunEvent) -> Run:
        """Compare what the loop has come to with what stands next; the run after it.

        Raises Diverged, RecordingEnds, and RecordedFailure where something else has ended the run there.
        """
        run, expected = self.due(run, type(found))
        if expected is None:
            raise RecordingEnds("the history ends here")
        if type(expected) is not type(found):
            self.diverge(run, _told(expected), _told(found))
        found = _with_what_is_known(expected, found)
        known = len(self.differences)
        self._note(run, of_events(expected, found, run.messages))
        if len(self.differences) > known and isinstance(found, ModelReplied | CallsSent):
            raise Diverged("what was decided differs, and with it all that comes")
        self.at += 1
        return run.on(found)

    def due(self, run: Run, wanted: type[RunEvent]) -> tuple[Run, RunEvent | None]:
        """Return what the owner did next, and the run before it. Raises RecordedFailure."""
        expected = self.next
        if isinstance(expected, BudgetRanLow) and wanted is not BudgetRanLow:
            run = self._given(run, expected)  # of a budget that is shared
            expected = self.next
        if isinstance(expected, RunStopped) and wanted is not RunStopped and not _is_decided(expected, run):
            raise RecordedFailure(expected.reason)
        return run, expected

    def stopped(self, run: Run) -> Run:
        """Return the run with the end that was written down, whatever has brought that about."""
        assert isinstance(self.next, RunStopped)  # noqa: S101  # as it was looked at
        return self._given(run, self.next)

    def diverge(self, run: Run, expected: Any, found: Any) -> NoReturn:
        """Note that something else happens than what stands next, and go no further."""
        self._note(run, [("what happens next", expected, found)])
        raise Diverged("the replay goes another way")

    def _note(self, run: Run, found: Any) -> None:
        place = self.through + 1
        for what, expected, came in found:
            self.differences.append(Difference(turn=run.turn, event=place, what=what, expected=expected, found=came))

    def coming(self, *kinds: type[RunEvent]) -> RunEvent | None:
        """Return the next event of these kinds, unless another decision of the owner's but a sending comes before."""
        for event in self.events[self.at :]:
            if isinstance(event, kinds):
                return event
            if not isinstance(event, (*GIVEN, CallsSent, BudgetRanLow)):
                return None
        return None


def is_given(event: RunEvent, run: Run) -> bool:
    """Whether an event is taken as it stands."""
    if isinstance(event, RunStopped):
        return event.state == "cancelled"
    if isinstance(event, CallsSent):
        return bool(run.streamed)  # of a reply that is still being written
    return isinstance(event, GIVEN)


def _is_decided(event: RunStopped, run: Run) -> bool:
    last = run.messages[-1].content if run.messages else ""
    return event.fault is None and bool(DECIDED.match(event.reason) or (run.repairs and event.reason == last))


def _with_what_is_known(expected: RunEvent, found: RunEvent) -> RunEvent:
    """Return a reply with what nobody can find out anew.

    That is what a budget that others share has stood against, and what was secret in arguments that are masked by now.
    """
    if not isinstance(expected, ModelReplied) or not isinstance(found, ModelReplied):
        return found
    shared = {call: why for call, why in expected.withheld.items() if SHARED.match(why)}
    changes: dict[str, Any] = {"withheld": {**found.withheld, **shared}} if shared else {}
    if expected.over_limit is not None and SHARED.match(expected.over_limit):
        changes |= {"over_limit": expected.over_limit, "wraps_up": expected.wraps_up}
    if set(found.masked) < set(expected.masked):
        changes["masked"] = expected.masked
    return found.model_copy(update=changes) if changes else found


def _told(event: RunEvent) -> str:
    """Return an event in a few words."""
    match event:
        case ModelReplied():
            asked = ", ".join(call.name for call in event.message.tool_calls)
            return f"{event.type}: asks for {asked}" if asked else f"{event.type}: answers"
        case CallsSent():
            waiting = f", {', '.join(event.awaiting_approval)} to be approved" if event.awaiting_approval else ""
            return f"{event.type}: {', '.join(event.deadlines_unix_s) or 'none'}{waiting}"
        case CallsBack() | SlowResultDelivered():
            return f"{event.type}: {', '.join(event.results) or 'none'}"
        case RunStopped():
            return f"{event.type}: {event.state}, {event.reason}"
        case _:
            return event.type


class ReplayJournal(Journal):
    """The only way to change a run that is replayed: each event is compared with what was written down."""

    def __init__(self, script: Script, store: RunStore, run: Run) -> None:
        super().__init__(store, Stored(run, beginning(run.run_id)), OFFLINE)
        self._script = script

    def read(self) -> None:
        """Take in what others brought, as an owner does that begins. Raises Diverged."""
        self.run = self._script.read(self.run)

    def hear_others(self) -> None:
        """Take in what others brought, as an owner does that was about to write. Raises Overtaken, RunIsOver."""
        if self._script.is_adopted_next(self.run):
            self.read()
            raise Overtaken("another orchestrator has begun the step anew")
        self.run = self._script.catch_up(self.run)
        if self.run.state.is_terminal:
            raise RunIsOver(f"run {self.run.run_id} is {self.run.state}: {self.run.reason}")

    async def append(
        self, event: RunEvent, after: Run | None = None, *, again: Callable[[Run], RunEvent] | None = None
    ) -> Run:
        """Compare an event with what was written down, and return the run after it."""
        del after
        for first in apart(event)[:-1]:
            await self.append(first)
        known = self.run
        self.hear_others()
        if again is not None and self.run is not known:
            event = again(self.run)
        event = apart(event)[-1]
        try:
            self.run.on(event)
        except IllegalTransition as error:
            if self.run is known:
                raise
            raise Overtaken(str(error)) from error
        self.run = self._script.take(self.run, event)
        return self.run


class RecordedReplies:
    """A model that says what was said."""

    name = "recorded"

    def __init__(self, script: Script) -> None:
        self._script = script
        self.journal: ReplayJournal | None = None
        """That of the run; made after the loop, which has this model."""

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next recorded reply, in one piece."""
        del messages, tools, extra_body
        assert self.journal is not None  # noqa: S101  # a bug of ours
        self.journal.hear_others()
        run, expected = self._script.due(self.journal.run, ModelReplied)
        self.journal.run = run
        if expected is None:
            raise RecordingEnds("the history ends here")
        if not isinstance(expected, ModelReplied):
            self._script.diverge(run, _told(expected), "the model is asked")
        yield ReplyComplete(
            message=expected.message,
            usage=expected.usage,
            model=self.name,
            finish_reason=_finish_reason(expected.message, expected.incomplete),
            service_tier=expected.service_tier,
            system_fingerprint=expected.system_fingerprint,
        )

    async def aclose(self) -> None:
        """Nothing to close."""


def _finish_reason(message: AssistantMessage, incomplete: Incomplete | None) -> str:
    """Return why a reply had ended: of what was incomplete this is known; that it was empty, the loop finds itself."""
    if incomplete is not None and incomplete is not Incomplete.EMPTY:
        return incomplete.value
    return FinishReason.TOOL_CALLS if message.tool_calls else FinishReason.STOP


class RecordedResults:
    """What calls came to, when they came to it."""

    def __init__(self, script: Script, brought: Collection[str]) -> None:
        """`brought` are the tools of interceptors, which every run has."""
        self._script = script
        self._brought = brought

    def of_sent(self, call: ToolCall, spec: ToolSpec | None) -> ToolResult | None:
        """The result that is written down next; None for a call that took longer."""
        del spec
        return self.of_sent_before(call.call_id)

    def of_sent_before(self, call_id: str) -> ToolResult | None:
        """The same."""
        back = self._script.coming(CallsBack)
        result = back.results.get(call_id) if isinstance(back, CallsBack) else None
        return None if isinstance(result, Submitted) else result

    def here(self, call: CallRecord, scope: CallScope, fetched: dict[str, ToolResult]) -> ToolResult | None:
        """What was answered; a search, and what is said of a tool that nobody has, are decided anew."""
        if call.tool == SEARCH_TOOLS or call.tool not in (scope.offered.keys() | self._brought):
            return None
        back = self._script.coming(CallsBack)
        if not isinstance(back, CallsBack) or call.call_id not in back.results:
            return None
        fetched.update(back.fetched)
        return back.results[call.call_id]

    def back(self, call_ids: Collection[str]) -> dict[str, ToolResult]:
        """What is written down at this very place: a resting run looks again when there is more."""
        event = self._script.next
        known = event.results if isinstance(event, CallsBack | RunStopped) else {}
        return {call_id: result for call_id, result in known.items() if call_id in call_ids}

    def handle_of(self, call: CallRecord) -> str:
        """The handle that the call was given."""
        for event in self._script.events[self._script.at :]:
            if isinstance(event, CallsParked) and call.call_id in event.handles:
                return event.handles[call.call_id]
            if isinstance(event, CallsBack) and isinstance(given := event.results.get(call.call_id), Submitted):
                return given.handle
        return call.call_id

    def status(self, handle: str, tasks: Tasks) -> Status:
        """How a call stands whose result is written down at this very place, as it was told; else it goes on."""
        call, event = tasks[handle], self._script.next
        named = {"task_id": handle, "call_id": call.call_id, "tool": call.tool}
        result = event.results.get(call.call_id) if isinstance(event, SlowResultDelivered) else None
        if not isinstance(event, SlowResultDelivered) or not isinstance(result, Returned | Failed):
            return Status(state=CallState.RUNNING, **named)
        return Status(state=result_state(result), age_s=_age_told(event, call), result=result, **named)


def _age_told(event: SlowResultDelivered, call: CallRecord) -> float:
    """Return how old the model was told that a task is."""
    for message in event.messages:
        if getattr(message, "tool_call_id", None) == f"{call.requested_id}-late":
            told: Any = json.loads(message.content)
            return float(told.get("age_s", 0.0))
    return 0.0
