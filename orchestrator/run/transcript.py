"""Results to ToolMessages, one for each call that the model asked for, in the model's order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.trusted import trusted

_own_message = trusted(ToolMessage)


def tool_messages(
    calls: Sequence[CallRecord], results: Mapping[str, Returned | Failed | Submitted]
) -> tuple[ToolMessage, ...]:
    """The messages of a batch. Raises KeyError for a call without a result: that would poison the conversation."""
    return tuple(to_message(call, results[call.call_id]) for call in calls)


def to_message(call: CallRecord, result: Returned | Failed | Submitted) -> ToolMessage:
    """What the model reads of one result."""
    content, media = content_of(result), result.media if isinstance(result, Returned) else ()
    # An interceptor may have put anything there.
    is_our_own = type(content) is str and media == ()
    return (_own_message if is_our_own else ToolMessage)(
        tool_call_id=call.requested_id,
        name=call.tool,
        content=content,
        is_error=isinstance(result, Failed),
        media=media,
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


def last_reply(messages: Sequence[Message]) -> tuple[AssistantMessage, dict[str, ToolMessage]]:
    """The reply that a conversation ends with, and the answers behind it by their ids.

    Raises CallerError for a conversation that ends otherwise.
    """
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return message, answers
        if not isinstance(message, ToolMessage):
            break
        answers[message.tool_call_id] = message
    raise CallerError("this conversation does not end with a reply of the model, or answers to one")


def repaired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A conversation from elsewhere with an answer behind each call: providers refuse one with a call left open.

    Answers that stand in another order or further down are put behind their request; those to nothing are left out.
    """
    whole: list[Message] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue  # it is put where it belongs
        whole.append(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            following = _answers_after(messages, position)
            whole += [following.get(call.id) or _dangling(call) for call in message.tool_calls]
    return tuple(whole)


def _answers_after(messages: Sequence[Message], position: int) -> dict[str, ToolMessage]:
    """The answers up to the next request, by id: ids recur."""
    answers: dict[str, ToolMessage] = {}
    for message in messages[position + 1 :]:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            break
        if isinstance(message, ToolMessage):
            answers.setdefault(message.tool_call_id, message)
    return answers


def _dangling(call: RequestedCall) -> ToolMessage:
    said = f"no result of {call.name} is known: the conversation was interrupted before it came back."
    return ToolMessage(tool_call_id=call.id, name=call.name, content=said, is_error=True)
