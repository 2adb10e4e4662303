"""Messages in the form of the GenAI conventions, for those who want them in their spans. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from toolfleet.messages import AssistantMessage, Message, ToolMessage, described
from toolfleet.strict_json import encodable


def messages_as_json(messages: Sequence[Message], finish_reason: str = "") -> str:
    """Return messages as JSON text; of images only what they are."""
    said = [_message(message) for message in messages]
    if finish_reason and said:
        said[-1]["finish_reason"] = finish_reason
    return encodable(orjson.dumps(said, default=str).decode())


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": list(_parts(message))}


def _parts(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
    text = described(message)
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    if isinstance(message, AssistantMessage):
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    return parts
