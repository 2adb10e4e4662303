"""A run as a value: what has happened so far, what is owed next. Pure: no clock, no Redis, no await.

A run is the fold of its events. `Run.on(event)` is the only way it changes; a change that TRANSITIONS lacks is a bug
and raises. Recovery is the same fold over the stored events.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from orchestrator.refusals import cut_off
from toolfleet.calls import Failed, Record, Returned, Submitted, ToolResult, call_id
from toolfleet.errors import IllegalTransition
from toolfleet.messages import AssistantMessage, Message, ToolMessage, Usage


class State(StrEnum):
    """Where a run stands. Each is left only as TRANSITIONS says."""

    THINKING = "thinking"
    """The model is owed the conversation so far."""
    CALLING = "calling"
    """Calls of the last reply are under way."""
    WAITING = "waiting"
    """The model has answered, but slow calls have results that it has not seen."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self in {State.DONE, State.FAILED, State.CANCELLED}


class Change(StrEnum):
    """What an event means for the state."""

    MODEL_ASKED_FOR_TOOLS = "model asked for tools"
    MODEL_ANSWERED = "model answered"
    MODEL_ANSWERED_EARLY = "model answered before its slow calls were back"
    ALL_CALLS_BACK = "all calls back"
    SLOW_RESULT_DELIVERED = "slow result delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STOPS: Final = {Change.FAILED: State.FAILED, Change.CANCELLED: State.CANCELLED}

TRANSITIONS: Final[dict[State, dict[Change, State]]] = {
    State.THINKING: {
        Change.MODEL_ASKED_FOR_TOOLS: State.CALLING,
        Change.MODEL_ANSWERED: State.DONE,
        Change.MODEL_ANSWERED_EARLY: State.WAITING,
        **_STOPS,
    },
    State.CALLING: {Change.ALL_CALLS_BACK: State.THINKING, **_STOPS},
    State.WAITING: {Change.SLOW_RESULT_DELIVERED: State.THINKING, **_STOPS},
    State.DONE: {},
    State.FAILED: {},
    State.CANCELLED: {},
}


class CallRecord(Record):
    """One call of the run: what was asked, and its result once there is one."""

    call_id: str
    turn: int
    requested_id: str
    tool: str
    arguments: str
    refusal: Failed | None = None
    """Why it must not be sent: its answer is known already."""
    result: ToolResult | None = None
    late_result: ToolResult | None = None
    """What a submitted call came to in the end."""

    @property
    def is_slow_and_open(self) -> bool:
        """Whether the model holds a handle whose result it has not seen."""
        return isinstance(self.result, Submitted) and self.late_result is None


class RunStarted(Record):
    """The first event of every run."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...] | None = None
    slow: Literal["wait", "handle"] = "wait"
    context: dict[str, Any] = Field(default_factory=dict)
    max_turns: int
    deadline_unix_s: float | None = None


class ModelReplied(Record):
    """The model's reply, stored before any of its calls is sent."""

    type: Literal["model_replied"] = "model_replied"
    message: AssistantMessage
    usage: Usage = Usage()
    cut_off: bool = False
    """The provider's output limit ended the reply; its last call may be half a call."""


class CallsBack(Record):
    """Every call of the last reply has a result, and the messages that the model will read."""

    type: Literal["calls_back"] = "calls_back"
    results: dict[str, ToolResult]
    messages: tuple[ToolMessage, ...]
    fetched: dict[str, ToolResult] = Field(default_factory=dict)
    """Late results of earlier, submitted calls that the model fetched in this turn, by call id."""


class SlowResultDelivered(Record):
    """Late results that nobody fetched, written into the conversation as if the model had."""

    type: Literal["slow_result_delivered"] = "slow_result_delivered"
    results: dict[str, ToolResult]
    messages: tuple[Message, ...]


class RunStopped(Record):
    """The run ends without an answer."""

    type: Literal["run_stopped"] = "run_stopped"
    state: Literal["failed", "cancelled"]
    reason: str


RunEvent = Annotated[
    RunStarted | ModelReplied | CallsBack | SlowResultDelivered | RunStopped, Field(discriminator="type")
]
RUN_EVENT: Final[TypeAdapter[RunStarted | ModelReplied | CallsBack | SlowResultDelivered | RunStopped]] = TypeAdapter(
    RunEvent
)


class Run(Record):
    """One conversation being worked on."""

    run_id: str
    state: State = State.THINKING
    messages: tuple[Message, ...]
    tools: tuple[str, ...] | None
    slow: Literal["wait", "handle"]
    context: dict[str, Any]
    max_turns: int
    deadline_unix_s: float | None
    turn: int = 0
    calls: tuple[CallRecord, ...] = ()
    usage: Usage = Usage()
    answer: str | None = None
    reason: str | None = None

    @classmethod
    def start(cls, event: RunStarted) -> Run:
        """A run that has just begun."""
        return cls(**{name: getattr(event, name) for name in RunStarted.model_fields if name != "type"})

    def on(self, event: ModelReplied | CallsBack | SlowResultDelivered | RunStopped) -> Run:
        """The run after an event. Raises IllegalTransition when it cannot have happened now."""
        match event:
            case ModelReplied():
                return self._replied(event)
            case CallsBack():
                return self._back(event)
            case SlowResultDelivered():
                return self._delivered(event)
            case RunStopped():
                return self._to(Change(event.state), reason=event.reason)

    @property
    def calls_owed(self) -> tuple[CallRecord, ...]:
        """The calls of the last reply that have no result yet."""
        return tuple(call for call in self.calls if call.turn == self.turn and call.result is None)

    @property
    def open_slow_calls(self) -> tuple[CallRecord, ...]:
        """The submitted calls whose results the model has not seen."""
        return tuple(call for call in self.calls if call.is_slow_and_open)

    def _replied(self, event: ModelReplied) -> Run:
        turn = self.turn + 1
        asked = self._asked(turn, event)
        if asked:
            change = Change.MODEL_ASKED_FOR_TOOLS
        elif self.open_slow_calls:
            change = Change.MODEL_ANSWERED_EARLY
        else:
            change = Change.MODEL_ANSWERED
        return self._to(
            change,
            turn=turn,
            messages=(*self.messages, event.message),
            calls=self.calls + asked,
            usage=self.usage + event.usage,
            answer=event.message.content if change is Change.MODEL_ANSWERED else None,
        )

    def _asked(self, turn: int, event: ModelReplied) -> tuple[CallRecord, ...]:
        requests = event.message.tool_calls
        last = len(requests) - 1
        return tuple(
            CallRecord(
                call_id=call_id(self.run_id, turn, position),
                turn=turn,
                requested_id=request.id,
                tool=request.name,
                arguments=request.arguments,
                refusal=cut_off(request) if event.cut_off and position == last else None,
            )
            for position, request in enumerate(requests)
        )

    def _back(self, event: CallsBack) -> Run:
        owed = {call.call_id for call in self.calls_owed}
        if owed != event.results.keys():
            raise IllegalTransition(f"run {self.run_id} owes {sorted(owed)}, not {sorted(event.results)}")
        return self._to(
            Change.ALL_CALLS_BACK,
            messages=self.messages + event.messages,
            calls=_with_late_results(
                tuple(
                    call.model_copy(update={"result": event.results[call.call_id]}) if call.call_id in owed else call
                    for call in self.calls
                ),
                event.fetched,
            ),
        )

    def _delivered(self, event: SlowResultDelivered) -> Run:
        return self._to(
            Change.SLOW_RESULT_DELIVERED,
            messages=self.messages + event.messages,
            calls=_with_late_results(self.calls, event.results),
        )

    def _to(self, change: Change, **fields: Any) -> Run:
        state = TRANSITIONS[self.state].get(change)
        if state is None:
            raise IllegalTransition(f"run {self.run_id} is {self.state}; {change!r} cannot happen now")
        return self.model_copy(update={"state": state, **fields})


def _with_late_results(
    calls: tuple[CallRecord, ...], late: dict[str, Returned | Failed | Submitted]
) -> tuple[CallRecord, ...]:
    if not late:
        return calls
    return tuple(
        call.model_copy(update={"late_result": late[call.call_id]}) if call.call_id in late else call for call in calls
    )
