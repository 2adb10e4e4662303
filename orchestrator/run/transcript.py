"""Results to ToolMessages, one for each call that the model asked for, in the model's order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import orjson

from toolfleet.calls import Failed, FailureKind, Returned, Submitted
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.words import Words
from toolfleet.trusted import changed, trusted

Result = TypeVar("Result", bound=Returned | Failed | Submitted)

_own_message = trusted(ToolMessage)


NO_ENDS: Final[Mapping[str, str]] = {}
"""Of a run that goes on."""


def tool_messages(
    calls: Sequence[CallRecord],
    results: Mapping[str, Returned | Failed | Submitted],
    words: Words | None = None,
    *,
    ended: Mapping[str, str] = NO_ENDS,
    is_interrupted: bool = False,
) -> tuple[ToolMessage, ...]:
    """The messages of a batch, in the run's own words where it has some.

    `ended` says of the calls that the run's end has ended as which of `Words` it has. Raises KeyError for a call
    without a result: that would poison the conversation.
    """
    if words is None:
        return tuple([to_message(call, results[call.call_id]) for call in calls])
    return tuple(
        to_message(call, in_own_words(words, call, results[call.call_id], ended, is_interrupted=is_interrupted))
        for call in calls
    )


def in_own_words(
    words: Words | None,
    call: CallRecord,
    result: Result,
    ended: Mapping[str, str] = NO_ENDS,
    *,
    is_interrupted: bool = False,
) -> Result:
    """A result as the model reads it: a failure in the run's own words, anything else as it is."""
    if words is None or not isinstance(result, Failed):
        return result
    kind: str = result.kind.value
    if result.kind is FailureKind.CANCELLED:
        was_refused = call.refusal is not None and call.refusal.kind is FailureKind.CANCELLED
        kind = ended.get(call.call_id) or ("interrupted" if is_interrupted or was_refused else kind)
    reason = call.approval.reason if call.approval is not None and not call.approval.granted else ""
    message = words.of(kind, call.tool, result, reason)
    return result if message == result.message else changed(result, message=message)


def to_message(call: CallRecord, result: Returned | Failed | Submitted) -> ToolMessage:
    """What the model reads of one result."""
    if isinstance(result, Returned):
        content, is_error, media = result.content, False, result.media
    else:
        content, is_error, media = content_of(result), isinstance(result, Failed), ()
    # An interceptor may have put anything there.
    is_our_own = type(content) is str and media == ()
    return (_own_message if is_our_own else ToolMessage)(
        tool_call_id=call.requested_id, name=call.tool, content=content, is_error=is_error, media=media
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
