"""The events of a run as AG-UI has them: a fold over its stored events, and over a reply that is being written.

**Each event has one number for ever**, whoever asks, whenever, on whichever server: it is the `id` of the server-sent
event. The numbers follow from what is stored, from 1 on; a reply that is still being written is cut into the pieces
that it will have once it is stored. Where some of a reply was shown and it is begun anew, the numbers leap over all
that can have been shown: a million for each attempt, a milliard where another orchestrator took over in its midst.

What was shown and does not stand is taken back: its messages are ended, and a MESSAGES_SNAPSHOT has those that stand.
Such events, like those that open and close a stream, have no number of their own. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ag_ui.core import (
    AssistantMessage as SaidByAgent,
    BaseEvent,
    FunctionCall,
    Message as Shown,
    MessagesSnapshotEvent,
    ReasoningMessage,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage as ResultTold,
    UserMessage as SaidByUser,
)

from toolfleet.messages import AssistantMessage, Message, ToolMessage, described
from toolfleet.orchestrator.doors.agui.identity import RESULT, THOUGHTS, reply_id
from toolfleet.orchestrator.doors.agui.reply_events import OpenReply
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id
from toolfleet.orchestrator.run.events import (
    CallsBack,
    CallsHandedOver,
    MessagesHeard,
    MessagesSaid,
    ModelReplied,
    RunAdopted,
    RunEvent,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import TextArrived, ThoughtArrived
from toolfleet.orchestrator.run.value import Run

ATTEMPT: Final = 1_000_000
LOST: Final = 1_000_000_000

OWN_SAYINGS: Final = "ag-ui:"
"""How the keys begin under which messages are said that came in by this door: their sender has them."""

Came = TextArrived | ThoughtArrived


class Told(NamedTuple):
    """One event, and the number that stands for all that was told with it."""

    number: int
    event: BaseEvent
    is_numbered: bool = True
    """Whether the number is its own: then it is told once to whoever goes on from another number."""


class RunEvents:
    """The events of one run, in order. `run` is the run as far as it was told."""

    def __init__(self, started: RunStarted, given: Sequence[Shown] = ()) -> None:
        """`given` are the messages that the client has and this run has not told."""
        self.run = Run.start(started)
        self.last_number = 0
        self._given = given
        self._shown: list[Shown] = []
        """What was told, as messages."""
        self._own_sayings: list[Message] = []
        """What was said to the run through this door."""
        self._names: dict[str, str] = {}
        """How calls are called in AG-UI, by the id that the model gave them; of each reply anew."""
        self._others = 0
        self._reply: OpenReply | None = None
        self._heard = 0
        """How much has been taken of the reply that is being written."""
        self._attempt = 0
        self._before = 0
        """The last number before the reply that is due."""
        self._step = 0
        self._is_elsewhere = False
        """Whether another orchestrator writes its replies, so that none of them is seen coming here."""

    # --- what opens and closes a stream ---------------------------------------------------------------------------

    def opened(self, has: Sequence[Shown], *, is_anew: bool = False, has_step: bool = False) -> list[BaseEvent]:
        """Return what a stream begins with that goes on from here; `has` is what its client has of this run.

        What of that is told again is taken from it first, else it would have it twice. With `is_anew` it is shown what
        stands, whatever it has; `has_step`: it is told next that the step begins.
        """
        known = {message.id for message in self._shown}
        again = [message for message in has if message.id not in known]
        # Thoughts are left alone by a snapshot without any, so they are emptied.
        emptied = [ReasoningMessage(id=each.id, content="") for each in again if isinstance(each, ReasoningMessage)]
        found: list[BaseEvent] = [self._snapshot(emptied)] if again or is_anew else []
        if self.run.values:
            found.append(StateSnapshotEvent(snapshot=self.run.values))
        if self._step and not has_step:
            found.append(StepStartedEvent(step_name=self._step_name))
        return found

    def closed(self) -> list[BaseEvent]:
        """Return what ends what is open, where the stream ends and the run does not."""
        found = self._reply.broken_off() if self._reply else []
        return [*found, *([StepFinishedEvent(step_name=self._step_name)] if self._step else [])]

    # --- what is being written ------------------------------------------------------------------------------------

    def heard(self, turn: int, attempt: int, came_since: Callable[[int], Sequence[Came]]) -> list[Told]:
        """Return the events of a reply that is being written, as far as it has come since this was last asked.

        `turn` and `attempt` say which one it is, `came_since(n)` what of it came after the first n pieces.
        """
        is_due = self.run.state is State.THINKING and turn == self.run.turn + 1 and attempt >= self._attempt
        if not is_due or self._is_elsewhere:
            return []
        found = self._begun_anew(attempt) if attempt > self._attempt else []
        for came in came_since(self._heard):
            self._heard += 1
            if came.text:
                found += self._step_begun(turn)
                reply = self._of_turn(turn)
                found += self._told(
                    reply.thought(came.text) if isinstance(came, ThoughtArrived) else reply.spoke(came.text)
                )
        return found

    # --- what is stored -------------------------------------------------------------------------------------------

    def take(self, event: RunEvent) -> list[Told]:
        """Return the events that a stored event brings. Raises IllegalTransition."""
        before, self.run = self.run, self.run.on(event)
        found: list[Told] = []
        if isinstance(event, MessagesSaid) and event.key.startswith(OWN_SAYINGS):
            self._own_sayings += event.messages
        if before.state is State.THINKING and isinstance(event, RunAdopted | RunStopped):
            found += self._lost(event)
        self._is_elsewhere |= isinstance(event, RunAdopted)
        found += self._brought(event, before)
        found += self._state_changed(before.values)
        if self.run.state.is_terminal:
            found += self._step_ended()
        if self._reply is None:
            self._before = self.last_number
        return found

    def _brought(self, event: RunEvent, before: Run) -> list[Told]:
        """Return the messages and calls that an event brings."""
        match event:
            case ModelReplied():
                return self._replied(event)
            case CallsBack():
                return self._back(event)
            case SlowResultDelivered():
                return self._messages(event.messages)
            case RunStopped() | MessagesHeard() | CallsHandedOver():
                return self._messages(self._besides_the_front_ends(self.run.messages[len(before.messages) :]))
            case _:
                return []

    def _lost(self, event: RunAdopted | RunStopped) -> list[Told]:
        """Leave a reply that nobody finishes. Where the run ends with it, what was shown stays."""
        found = self._broken_off() if isinstance(event, RunStopped) else self._taken_back()
        self.last_number = self._before + LOST
        self._reply_is_over()
        return found

    def _replied(self, event: ModelReplied) -> list[Told]:
        """Return what is still to be told of a reply, now that all of it is stored."""
        turn, message = self.run.turn, event.message
        found = self._begun_anew(event.restarts) if event.restarts > self._attempt else []
        found += self._step_begun(turn)
        reply, text = self._of_turn(turn), message.content or message.refusal
        if not reply.begins(message.thoughts, text):
            found += self._told_otherwise(message, turn, text)
        else:
            found += self._told(reply.whole(message.thoughts, text))
            self._show_reply(message, turn, text)
        calls = [call for call in self.run.calls if call.turn == turn]
        self._names = {call.requested_id: handed_over_id(call) for call in calls}
        shown = [(handed_over_id(call), call.tool, call.arguments) for call in calls]
        found += self._calls(reply_id(self.run.run_id, turn, self._attempt), shown)
        self._reply_is_over()
        return found if calls else [*found, *self._step_ended()]

    def _told_otherwise(self, message: AssistantMessage, turn: int, text: str) -> list[Told]:
        """Take back what was shown of a reply that says something else, and show it whole.

        The numbers are those that it has for whoever has seen nothing of it.
        """
        found = self._broken_off()
        self._reply, self._step = None, turn
        whole = self._of_turn(turn).whole(message.thoughts, text)
        self.last_number = self._start + 1 + len(whole)
        self._show_reply(message, turn, text)
        shown = [StepStartedEvent(step_name=self._step_name), self._snapshot()]
        return [*found, *self._told(shown, is_numbered=False)]

    def _back(self, event: CallsBack) -> list[Told]:
        found = self._messages(event.messages)
        return [*found, *self._step_ended()] if event.messages else found

    def _besides_the_front_ends(self, added: Sequence[Message]) -> list[Message]:
        """Return messages but for those that stand where a front end's answers belong."""
        pending = {call.requested_id for call in self.run.handed_over}
        return [each for each in added if not isinstance(each, ToolMessage) or each.tool_call_id not in pending]

    # --- messages -------------------------------------------------------------------------------------------------

    def _messages(self, messages: Iterable[Message]) -> list[Told]:
        """Return the events of whole messages."""
        found: list[Told] = []
        for message in messages:
            if any(message is own for own in self._own_sayings):
                continue  # who has said it shows it already
            match message:
                case ToolMessage():
                    found += self._result(message)
                case AssistantMessage():
                    found += self._delivered(message)
                case _:
                    found += self._whole_text(message)
        return found

    def _result(self, message: ToolMessage) -> list[Told]:
        call_id = self._names.get(message.tool_call_id, message.tool_call_id)
        content = message.content
        self._shown.append(ResultTold(id=call_id + RESULT, tool_call_id=call_id, content=content))
        event = ToolCallResultEvent(message_id=call_id + RESULT, tool_call_id=call_id, content=content, role="tool")
        return self._told([event])

    def _delivered(self, message: AssistantMessage) -> list[Told]:
        """Return the events of a message that stands as if the model had said it: it fetches late results."""
        message_id = self._other_id()
        names = [f"{message_id}-{place}" for place in range(len(message.tool_calls))]
        self._names |= {call.id: name for call, name in zip(message.tool_calls, names, strict=True)}
        self._shown.append(SaidByAgent(id=message_id, content=message.content))
        calls = zip(names, message.tool_calls, strict=True)
        return self._calls(message_id, [(name, call.name, call.arguments) for name, call in calls])

    def _whole_text(self, message: Message) -> list[Told]:
        """Return the events of what a person has said meanwhile."""
        message_id, text = self._other_id(), described(message)
        self._shown.append(SaidByUser(id=message_id, content=text))
        content = [TextMessageContentEvent(message_id=message_id, delta=text)] if text else []
        start = TextMessageStartEvent(message_id=message_id, role="user")
        return self._told([start, *content, TextMessageEndEvent(message_id=message_id)])

    def _calls(self, message_id: str, calls: Iterable[tuple[str, str, str]]) -> list[Told]:
        """Return the events of calls, each with its id, tool and arguments, that one message asks for."""
        found: list[BaseEvent] = []
        for call_id, tool, arguments in calls:
            found.append(ToolCallStartEvent(tool_call_id=call_id, tool_call_name=tool, parent_message_id=message_id))
            found += [ToolCallArgsEvent(tool_call_id=call_id, delta=arguments)] if arguments else []
            found.append(ToolCallEndEvent(tool_call_id=call_id))
            self._show_call(message_id, ToolCall(id=call_id, function=FunctionCall(name=tool, arguments=arguments)))
        return self._told(found)

    def _other_id(self) -> str:
        self._others += 1
        return f"{self.run.run_id}-m{self._others}"

    # --- what stands ----------------------------------------------------------------------------------------------

    def _snapshot(self, more: Sequence[Shown] = ()) -> BaseEvent:
        return MessagesSnapshotEvent(messages=[*self._given, *self._shown, *more])

    def _show_reply(self, message: AssistantMessage, turn: int, text: str) -> None:
        message_id = reply_id(self.run.run_id, turn, self._attempt)
        if message.thoughts:
            self._shown.append(ReasoningMessage(id=message_id + THOUGHTS, content=message.thoughts))
        if text or message.tool_calls:
            self._shown.append(SaidByAgent(id=message_id, content=text))

    def _show_call(self, message_id: str, call: ToolCall) -> None:
        for at, shown in enumerate(self._shown):
            if isinstance(shown, SaidByAgent) and shown.id == message_id:
                self._shown[at] = shown.model_copy(update={"tool_calls": [*(shown.tool_calls or ()), call]})

    def _taken_back(self) -> list[Told]:
        """Return what takes back what was shown of the reply that is open."""
        if self._reply is None:
            return []
        return [*self._broken_off(), *self._told([self._snapshot()], is_numbered=False)]

    def _broken_off(self) -> list[Told]:
        """Return what ends the reply that is open, and its step, for those who look on."""
        found = self._told(self.closed(), is_numbered=False)
        self._step = 0
        return found

    # --- replies and steps ----------------------------------------------------------------------------------------

    def _of_turn(self, turn: int) -> OpenReply:
        if self._reply is None:
            message_id = reply_id(self.run.run_id, turn, self._attempt)
            self._reply = OpenReply(message_id, message_id + THOUGHTS)
        return self._reply

    def _begun_anew(self, attempt: int) -> list[Told]:
        found = self._taken_back()
        self._attempt, self._reply, self._heard = attempt, None, 0
        self.last_number = self._start
        return found

    @property
    def _start(self) -> int:
        """The number before the first event of the reply that is open, in this attempt."""
        return self._before + ATTEMPT * self._attempt

    def _reply_is_over(self) -> None:
        self._attempt, self._reply, self._heard = 0, None, 0

    @property
    def _step_name(self) -> str:
        return f"turn {self._step}"

    def _step_begun(self, turn: int) -> list[Told]:
        if self._step == turn:
            return []
        found = self._step_ended()
        self._step = turn
        return [*found, *self._told([StepStartedEvent(step_name=self._step_name)])]

    def _step_ended(self) -> list[Told]:
        if not self._step:
            return []
        ended = StepFinishedEvent(step_name=self._step_name)
        self._step = 0
        return self._told([ended])

    def _state_changed(self, before: dict[str, Any]) -> list[Told]:
        """Return how the tools' shared state is another one now. Nothing is ever taken out of it."""
        now = self.run.values
        changed = [name for name in now if name not in before or before[name] != now[name]]
        if not changed:
            return []
        if not before:
            return self._told([StateSnapshotEvent(snapshot=now)])
        patch: list[Any] = [{"op": "add", "path": f"/{_pointer(name)}", "value": now[name]} for name in changed]
        return self._told([StateDeltaEvent(delta=patch)])

    # --- numbers --------------------------------------------------------------------------------------------------

    def _told(self, events: Iterable[BaseEvent], *, is_numbered: bool = True) -> list[Told]:
        found = []
        for event in events:
            self.last_number += is_numbered
            found.append(Told(self.last_number, event, is_numbered))
        return found


def _pointer(name: str) -> str:
    """Return a key as it stands in a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
