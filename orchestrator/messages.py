"""Results to ToolMessages, one for each call that the model asked for, in the model's order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from orchestrator.history import CallRecord
from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.messages import AssistantMessage, Message, ToolMessage


def tool_messages(
    calls: Sequence[CallRecord], results: Mapping[str, Returned | Failed | Submitted]
) -> tuple[ToolMessage, ...]:
    """The messages of a batch. Raises KeyError for a call without a result: that would poison the conversation."""
    return tuple(to_message(call, results[call.call_id]) for call in calls)


def to_message(call: CallRecord, result: Returned | Failed | Submitted) -> ToolMessage:
    """What the model reads of one result."""
    return ToolMessage(
        tool_call_id=call.requested_id,
        name=call.tool,
        content=content_of(result),
        is_error=isinstance(result, Failed),
    )


def content_of(result: Returned | Failed | Submitted) -> str:
    """A result as text for the model."""
    match result:
        case Returned():
            return result.content
        case Failed():
            return result.message
        case Submitted():
            return orjson.dumps(
                {
                    "status": "submitted",
                    "task_id": result.handle,
                    "message": result.message,
                    "poll_after_s": result.poll_after_s,
                }
            ).decode()


def answered_ids(message: AssistantMessage, history: Sequence[Message]) -> set[str]:
    """The ids of the message's calls that a history answers. Answers to earlier messages do not count: ids recur."""
    answered: set[str] = set()
    for past in reversed(history):
        if isinstance(past, ToolMessage):
            answered.add(past.tool_call_id)
        elif isinstance(past, AssistantMessage) and past.tool_calls:
            return answered if past == message else set()
    return answered
