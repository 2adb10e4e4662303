"""A run's life as a model of it: what may happen next, said independently of the table in the code."""

from __future__ import annotations

from collections.abc import Sequence

from toolfleet.calls import Failed, FailureKind, Returned, Submitted
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.run.events import (
    Approval,
    ApprovalGiven,
    CallsBack,
    CallsParked,
    CallsSent,
    CallsStreamed,
    ModelReplied,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run

STARTED = RunStarted(run_id="m", messages=(UserMessage(content="?"),), model="m", terms=RunTerms(max_turns=9))


def reply(calls: int, turn: int) -> ModelReplied:
    requested = tuple(RequestedCall(id=f"c{turn}-{n}", name="add", arguments="{}") for n in range(calls))
    text = "" if requested else "answer"
    return ModelReplied(message=AssistantMessage(content=text, tool_calls=requested), usage=Usage(input_tokens=1))


def result(kind: str) -> Returned | Failed | Submitted:
    return {
        "returned": Returned(content="1"),
        "failed": Failed(kind=FailureKind.ERROR, message="no"),
        "submitted": Submitted(handle="h"),
    }[kind]


def back(run: Run, call_ids: Sequence[str], kind: str) -> CallsBack:
    results = {call_id: result(kind) for call_id in call_ids}
    return CallsBack(results=results, messages=run.messages_with(results))


def delivered(run: Run) -> SlowResultDelivered:
    late = {call.call_id: Returned(content="late") for call in run.open_slow_calls}
    return SlowResultDelivered(results=late, messages=())


def sent(call_ids: Sequence[str], undecided: Sequence[str]) -> CallsSent:
    return CallsSent(deadlines_unix_s=dict.fromkeys(call_ids, 1e9), awaiting_approval=tuple(undecided))


def streamed(calls: int, turn: int) -> CallsStreamed:
    return CallsStreamed(message=reply(calls, turn).message)


def parked(call_ids: Sequence[str]) -> CallsParked:
    return CallsParked(handles=dict.fromkeys(call_ids, "h"))


def decided(call_id: str, *, granted: bool) -> ApprovalGiven:
    return ApprovalGiven(call_id=call_id, approval=Approval(granted=granted, reason="because"))


STOPS: dict[str, RunEvent] = {
    "failed": RunStopped(state="failed", reason="broken"),
    "cancelled": RunStopped(state="cancelled", reason="unwanted"),
}
ADOPTED = RunAdopted(orchestrator_id="another")
RESUMED = RunResumed(messages=(UserMessage(content="and now?"),))


def unanswered(messages: Sequence[Message]) -> list[str]:
    """The requested calls whose answers are not right behind their request, in its order."""
    missing: list[str] = []
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            wanted = [call.id for call in message.tool_calls]
            following = messages[position + 1 : position + 1 + len(wanted)]
            answered = [each.tool_call_id if isinstance(each, ToolMessage) else "" for each in following]
            missing += [
                id_ for id_, given in zip(wanted, [*answered, *[""] * len(wanted)], strict=False) if id_ != given
            ]
    return missing
