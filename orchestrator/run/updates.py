"""What a caller of `Orchestrator.stream` sees while a run goes on. Frozen records, in the order things happened.

`at_unix_s` is when this process heard of it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from toolfleet.call_news import Asks, News, Yields
from toolfleet.calls import Progress, Record, ToolResult, attempt_of
from toolfleet.messages import UserMessage
from toolfleet.orchestrator.run.nearly_spent import Left
from toolfleet.orchestrator.run.value import Run


class RunBegan(Record):
    """The run is stored and about to ask the model."""

    type: Literal["run_began"] = "run_began"
    run_id: str


class ReplyBegan(Record):
    """The model begins a reply or, with a higher `attempt`, begins it anew: what was heard of it before is void."""

    type: Literal["reply_began"] = "reply_began"
    run_id: str
    turn: int
    """Which of the run's replies it is, from 1."""
    attempt: int = 0


class TextArrived(Record):
    """A piece of the model's text."""

    type: Literal["text_arrived"] = "text_arrived"
    run_id: str
    text: str


class ThoughtArrived(Record):
    """A piece of what the model lets see of its thinking before it speaks."""

    type: Literal["thought_arrived"] = "thought_arrived"
    run_id: str
    text: str


class CallArgumentsArrived(Record):
    """A piece of a call that the model is still writing; `index` is its place in the reply."""

    type: Literal["call_arguments_arrived"] = "call_arguments_arrived"
    run_id: str
    index: int
    requested_id: str
    tool: str
    arguments_delta: str


class UserSpoke(Record):
    """What a person has said meanwhile is part of the conversation now; the model reads it next."""

    type: Literal["user_spoke"] = "user_spoke"
    run_id: str
    messages: tuple[UserMessage, ...]


class BudgetRunsLow(Record):
    """Four fifths of something are used that the run may use up: what is left of it. Once for each limit."""

    type: Literal["budget_runs_low"] = "budget_runs_low"
    run_id: str
    left: tuple[Left, ...]


class CallsRequested(Record):
    """The model has asked for calls, and they are written down."""

    type: Literal["calls_requested"] = "calls_requested"
    run_id: str
    turn: int
    calls: int


class CallStarted(Record):
    """A call is on its way to the workers."""

    type: Literal["call_started"] = "call_started"
    run_id: str
    call_id: str
    tool: str
    arguments: str
    long_running: bool
    at_unix_s: float


class CallAwaitsApproval(Record):
    """A call waits for a person: `Orchestrator.approve` lets it run or denies it, and so does `toolfleet runs`."""

    type: Literal["call_awaits_approval"] = "call_awaits_approval"
    run_id: str
    call_id: str
    tool: str
    arguments: str
    digest: str = ""
    """What is approved, for the decision to say so (`Approval.digest`)."""


class CallAsks(Record):
    """A running call asks a person: `Orchestrator.answer` says something to it, and so does `toolfleet answer`."""

    type: Literal["call_asks"] = "call_asks"
    run_id: str
    call_id: str
    tool: str
    question_id: str
    message: str
    answer_schema: dict[str, Any]
    """The JSON Schema of what may be answered."""
    expires_unix_s: float


class CallProgressed(Record):
    """A running call says how far it has come."""

    type: Literal["call_progressed"] = "call_progressed"
    run_id: str
    call_id: str
    tool: str
    fraction: float
    message: str


class CallYielded(Record):
    """A running call has yielded some pieces of its result, numbered from 0 in each attempt.

    `voids`: it has begun anew, and what it had yielded before is void. A gap in the numbers is what was not told; the
    result has all of it.
    """

    type: Literal["call_yielded"] = "call_yielded"
    run_id: str
    call_id: str
    tool: str
    attempt: int
    tries: int
    first: int
    count: int
    text: str
    values: list[Any]
    voids: bool


class CallSubmitted(Record):
    """A slow call goes on by itself; `handle` stands for it."""

    type: Literal["call_submitted"] = "call_submitted"
    run_id: str
    call_id: str
    tool: str
    handle: str


class CallEnded(Record):
    """A call has its result."""

    type: Literal["call_ended"] = "call_ended"
    run_id: str
    call_id: str
    tool: str
    result: ToolResult
    at_unix_s: float

    @property
    def began_unix_s(self) -> float | None:
        """When its worker began with it; None where no worker has ended it."""
        return attempt.began_unix_s if (attempt := attempt_of(self.result)) else None

    @property
    def ended_unix_s(self) -> float | None:
        """When its worker had its result; None as above."""
        return attempt.ended_unix_s if (attempt := attempt_of(self.result)) else None


class RunEnded(Record):
    """The run is over; always the last event."""

    type: Literal["run_ended"] = "run_ended"
    run: Run


RunUpdate = (
    RunBegan
    | ReplyBegan
    | TextArrived
    | ThoughtArrived
    | CallArgumentsArrived
    | UserSpoke
    | BudgetRunsLow
    | CallsRequested
    | CallStarted
    | CallAwaitsApproval
    | CallAsks
    | CallProgressed
    | CallYielded
    | CallSubmitted
    | CallEnded
    | RunEnded
)


_OF_PIECES: Final = ("attempt", "tries", "first", "count", "text", "values", "voids")


def told(run_id: str, call_id: str, tool: str, news: News) -> RunUpdate:
    """Return what is told of a call that goes on to who looks on at its run."""
    match news:
        case Progress(fraction=fraction, message=message):
            return CallProgressed(run_id=run_id, call_id=call_id, tool=tool, fraction=fraction, message=message)
        case Yields():
            fields = {name: getattr(news, name) for name in _OF_PIECES}
            return CallYielded(run_id=run_id, call_id=call_id, tool=tool, **fields)
        case Asks(question=question):
            return CallAsks(
                run_id=run_id,
                call_id=call_id,
                tool=tool,
                question_id=question.question_id,
                message=question.message,
                answer_schema=question.schema_,
                expires_unix_s=question.expires_unix_s,
            )
