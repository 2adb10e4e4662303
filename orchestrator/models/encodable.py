"""A reply as it can be stored and shown, whichever model it is from: every text in it has a UTF-8 form. Pure."""

from __future__ import annotations

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.strict_json import encodable, encodable_value


def encodable_reply(message: AssistantMessage) -> AssistantMessage:
    """Return the reply with halves of characters joined or replaced; mostly the same object."""
    calls = tuple(_encodable_call(call) for call in message.tool_calls)
    said = {name: encodable(getattr(message, name)) for name in ("content", "refusal", "thoughts")}
    extras = encodable_value(message.extras) if message.extras else message.extras
    same_text = all(text is getattr(message, name) for name, text in said.items())
    if same_text and extras == message.extras and calls == message.tool_calls:
        return message
    return message.model_copy(update={**said, "tool_calls": calls, "extras": extras})


def _encodable_call(call: RequestedCall) -> RequestedCall:
    whole = {
        name: encodable(text) for name, text in (("id", call.id), ("name", call.name), ("arguments", call.arguments))
    }
    if call.extras:
        whole["extras"] = encodable_value(call.extras)
    same = all(text == getattr(call, name) for name, text in whole.items())
    return call if same else call.model_copy(update=whole)
