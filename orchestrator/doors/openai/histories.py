"""Conversations that cannot have happened are refused as OpenAI refuses them, by the id that is wrong. Pure.

Told to whoever made it: mended in silence, a lost result would look to the model like a call that never came back.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.openai.openai_records import ChatMessage


def must_be_whole(messages: Sequence[ChatMessage]) -> None:
    """Raise Problem unless each call has one answer, right behind it, and each answer its call."""
    owed: dict[str, None] = {}
    asked_at = 0
    answered: set[str] = set()
    for at, message in enumerate(messages):
        if message.role == "tool":
            _must_be_owed(message.tool_call_id or "", owed, answered, at)
            continue
        _must_be_answered(owed, asked_at)
        if message.role == "assistant" and message.tool_calls:
            owed, asked_at, answered = _asked(message, at), at, set()
        else:
            answered = set()
    _must_be_answered(owed, asked_at)


def _asked(message: ChatMessage, at: int) -> dict[str, None]:
    owed: dict[str, None] = {}
    for place, call in enumerate(message.tool_calls or ()):
        if call.id in owed:
            raise _broken(f"two calls of one message have the id {call.id!r}", f"messages[{at}].tool_calls[{place}].id")
        owed[call.id] = None
    return owed


def _must_be_owed(call_id: str, owed: dict[str, None], answered: set[str], at: int) -> None:
    if call_id in owed:
        del owed[call_id]
        answered.add(call_id)
        return
    where = f"messages[{at}].tool_call_id"
    if call_id in answered:
        raise _broken(f"the call {call_id!r} is answered twice", where)
    raise _broken(
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls': no call before this "
        f"one has the tool_call_id {call_id!r}",
        where,
    )


def _must_be_answered(owed: dict[str, None], asked_at: int) -> None:
    if owed:
        raise _broken(
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. These did not have response messages: {', '.join(owed)}",
            f"messages[{asked_at}].tool_calls",
        )


def _broken(detail: str, param: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, detail, code="invalid-conversation", param=param)
