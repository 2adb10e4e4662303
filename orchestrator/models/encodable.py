"""A reply as it can be stored and shown, whichever model it is from: every text in it has a UTF-8 form. Pure."""

from __future__ import annotations

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.strict_json import encodable, encodable_value


def encodable_reply(message: AssistantMessage) -> AssistantMessage:
    """Return the reply with halves of characters joined or replaced; mostly the same object."""
    calls = tuple([_encodable_call(call) for call in message.tool_calls])
    content, refusal, thoughts = encodable(message.content), encodable(message.refusal), encodable(message.thoughts)
    extras = encodable_value(message.extras) if message.extras else message.extras
    # `encodable` returns the very text that it was given where there is nothing to mend.
    is_same_text = content is message.content and refusal is message.refusal and thoughts is message.thoughts
    if is_same_text and extras == message.extras and calls == message.tool_calls:
        return message
    said = {"content": content, "refusal": refusal, "thoughts": thoughts}
    return message.model_copy(update={**said, "tool_calls": calls, "extras": extras})


def _encodable_call(call: RequestedCall) -> RequestedCall:
    id_, name, arguments = encodable(call.id), encodable(call.name), encodable(call.arguments)
    extras = encodable_value(call.extras) if call.extras else call.extras
    is_same_text = id_ is call.id and name is call.name and arguments is call.arguments
    if is_same_text and extras == call.extras:
        return call
    return call.model_copy(update={"id": id_, "name": name, "arguments": arguments, "extras": extras})
