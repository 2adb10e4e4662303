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
    MessagesSaid,
    ModelReplied,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.limits import Limits
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.tool import ToolSpec

STARTED = RunStarted(run_id="m", messages=(UserMessage(content="?"),), model="m", terms=RunTerms(max_turns=9))

DEADLINE_UNIX_S = 1e9
BEFORE, AFTER = DEADLINE_UNIX_S - 1, DEADLINE_UNIX_S + 1

MINE = ToolSpec(name="mine", description="the caller's own", input_schema={"type": "object"})

LIMITED = STARTED.model_copy(
    update={
        "terms": RunTerms(max_turns=1000, client_tools=(MINE,), limits=Limits(calls=6, calls_per_tool=4)),
        "deadline_unix_s": DEADLINE_UNIX_S,
    }
)
"""A run that reaches limits soon."""


def reply(calls: int, turn: int) -> ModelReplied:
    return reply_with(["add"] * calls, turn)


def reply_with(tools: Sequence[str], turn: int, begins: int = 0) -> ModelReplied:
    """Calls of these tools; no two turns ask for the same, or all of them would go in circles."""
    requested = tuple(
        RequestedCall(id=f"c{turn}-{n}", name=tool, arguments=f'{{"turn": {turn}}}')
        for n, tool in enumerate(tools, begins)
    )
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


def sent(call_ids: Sequence[str], undecided: Sequence[str], direct: Sequence[str] = ()) -> CallsSent:
    deadlines = dict.fromkeys(call_ids, DEADLINE_UNIX_S)
    return CallsSent(deadlines_unix_s=deadlines, awaiting_approval=tuple(undecided), direct=tuple(direct))


def streamed(tools: Sequence[str], turn: int, begins: int) -> CallsStreamed:
    return CallsStreamed(message=reply_with(tools, turn, begins).message)


def parked(call_ids: Sequence[str]) -> CallsParked:
    return CallsParked(handles=dict.fromkeys(call_ids, "h"))


def decided(call_id: str, *, granted: bool) -> ApprovalGiven:
    return ApprovalGiven(call_id=call_id, approval=Approval(granted=granted, reason="because"))


def said(number: int, *, interrupt: bool) -> MessagesSaid:
    return MessagesSaid(messages=(UserMessage(content=f"more: {number}"),), interrupt=interrupt, key=f"{number}")


def is_said(message: Message) -> bool:
    return isinstance(message, UserMessage) and str(message.content).startswith("more: ")


STOPS: dict[str, RunEvent] = {
    "failed": RunStopped(state="failed", reason="broken"),
    "cancelled": RunStopped(state="cancelled", reason="unwanted"),
}
ADOPTED = RunAdopted(orchestrator_id="another")
RESUMED = RunResumed(messages=(UserMessage(content="and now?"),))


def told(run: Run) -> dict[str, str]:
    """What the history says of each call, by call id; of those only that have their message."""
    said = {message.tool_call_id: message.content for message in run.messages if isinstance(message, ToolMessage)}
    return {call.call_id: said[call.requested_id] for call in run.calls if call.requested_id in said}


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
