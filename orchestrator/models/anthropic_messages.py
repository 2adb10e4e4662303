"""A conversation and its tools as Anthropic Messages writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolfleet.background import as_strict
from toolfleet.calls import MediaPart
from toolfleet.images import Image
from toolfleet.media import essence_of
from toolfleet.messages import (
    AssistantMessage,
    Message,
    RequestedCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from toolfleet.orchestrator.models.anthropic_blocks import THINKING, given_back, paired
from toolfleet.orchestrator.models.arguments import as_object
from toolfleet.orchestrator.models.foreign import extra_of
from toolfleet.orchestrator.models.names import legal_id, legal_name
from toolfleet.orchestrator.models.protocol import OfferedTool
from toolfleet.orchestrator.models.provider_tools import PARTS
from toolfleet.orchestrator.models.sight import gone, images_of, images_said

_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def encoded(messages: Sequence[Message], provider: str, *, sees: bool = True) -> list[dict[str, Any]]:
    """Return the messages without the system's, neighbours of one role joined.

    So all results of a batch stand in one user message right after the calls, as the API demands, and what the user
    said next follows them in the same message.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = _blocks(message, provider, sees=sees)
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if turns and blocks and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    has_parts = any(
        isinstance(message, AssistantMessage) and extra_of(message, provider, PARTS) for message in messages
    )
    return paired(turns) if has_parts else turns


def container_of(messages: Sequence[Message], provider: str) -> str:
    """Return in which container the provider's tools go on whose reply waits for results of ours; "" for none.

    Of any other reply nobody knows whether its container is still there.
    """
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            kept = extra_of(message, provider, PARTS) if message.tool_calls else None
            container = kept.get("container") if isinstance(kept, dict) else None
            return container if isinstance(container, str) else ""
        if not isinstance(message, ToolMessage):
            break
    return ""


def _blocks(message: Message, provider: str, *, sees: bool) -> list[dict[str, Any]]:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return [block for part in message.parts for block in _user_blocks(part)]
        case AssistantMessage():
            if (given := given_back(message, extra_of(message, provider, PARTS), _tool_use)) is not None:
                return given
            uses = (block for call in message.tool_calls for block in (*_thoughts(call, provider), _tool_use(call)))
            said = (block for text in (message.content, message.refusal) for block in _text_block(text))
            return [*_thoughts(message, provider), *said, *uses]
        case ToolMessage():
            return [_tool_result(message, images_of(message) if sees else [])]


def objection_to_messages(messages: Sequence[Message]) -> str | None:
    """Return what the API has no word for in a conversation; None if there is nothing."""
    named = (message.name for message in messages if not isinstance(message, ToolMessage) and message.name)
    if (name := next(named, None)) is not None:
        return f"an Anthropic model takes no names of participants: leave out the name {name!r} of the message"
    details = (image.detail for image in images_said(messages) if image.detail not in {"", "auto"})
    if (detail := next(details, None)) is not None:
        return f"an Anthropic model takes images without a detail: leave out {detail!r}"
    return None


def _user_blocks(part: str | Image) -> list[dict[str, Any]]:
    """Return text or an image as blocks; of an image that is kept no longer, what it was."""
    if isinstance(part, str):
        return _text_block(part)
    if part.url:
        return [{"type": "image", "source": {"type": "url", "url": part.url}}]
    return [_base64_block(part.media_type, part.data)] if part.data else _text_block(gone(part))


def _thoughts(record: AssistantMessage | RequestedCall, provider: str) -> list[dict[str, Any]]:
    return extra_of(record, provider, THINKING) or []


def _text_block(text: str) -> list[dict[str, Any]]:
    """Return a text as a block: the API refuses those without visible text."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _tool_use(call: RequestedCall) -> dict[str, Any]:
    call_id = legal_id(call.id, _LEGAL_ID)
    return {"type": "tool_use", "id": call_id, "name": legal_name(call.name), "input": as_object(call.arguments)}


def _tool_result(message: ToolMessage, images: Sequence[MediaPart]) -> dict[str, Any]:
    call_id = legal_id(message.tool_call_id, _LEGAL_ID)
    shown = [*_text_block(message.content), *map(_image_block, images)] if images else message.content
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": shown}
    return block | {"is_error": True} if message.is_error else block


def _image_block(part: MediaPart) -> dict[str, Any]:
    return _base64_block(essence_of(part.media_type), part.data)


def _base64_block(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def tools_used(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tools that a conversation has used, by their names alone: for a model that may not use them again."""
    asked = (call.name for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls)
    return [{"name": name, "input_schema": {"type": "object"}} for name in dict.fromkeys(map(legal_name, asked))]


def encoded_tool(tool: OfferedTool) -> dict[str, Any]:
    """Return one tool on offer."""
    schema = as_strict(tool.input_schema) if tool.strict else tool.input_schema
    told = {"name": legal_name(tool.name), "description": tool.description, "input_schema": schema}
    return told if tool.strict is None else {**told, "strict": tool.strict}
