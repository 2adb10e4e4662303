"""The Chat Completions wire format: a conversation and its tools as a request.

Some providers want something back with the calls of a past turn, and refuse the next one without it: Gemini the
signatures of its thoughts (`extra_content` of a call), DeepSeek and Kimi the thoughts themselves (`reasoning_content`).
OpenAI itself refuses fields it does not know, so each is returned only to the host it came from.

Pure, and strict in what it sends. What comes back is read in `openai_reply`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolfleet.background import as_strict
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
from toolfleet.orchestrator.models.arguments import as_object_text
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.foreign import extra_of
from toolfleet.orchestrator.models.names import legal_id, legal_name
from toolfleet.orchestrator.models.objections import objection_to_images
from toolfleet.orchestrator.models.openai_options import limit_name, objection_to_options, openai_options
from toolfleet.orchestrator.models.openai_reply import EXTRA_CONTENT, REASONING, CompletionReader
from toolfleet.orchestrator.models.protocol import OfferedTool
from toolfleet.orchestrator.models.provider_tools import PARTS, name_of
from toolfleet.orchestrator.models.sight import gone, images_of

# OpenAI refuses ids over 40 characters; which characters they have is up to each server.
_LEGAL_ID = re.compile(r".{1,40}")


class OpenAIWire:
    """Chat Completions."""

    path = "/chat/completions"

    def __init__(
        self,
        *,
        usage_in_stream: bool = True,
        sees: bool = False,
        provider_tools: Sequence[Mapping[str, Any]] = (),
        web_search: Mapping[str, Any] | None = None,
    ) -> None:
        """`web_search` are OpenAI's own options of it, which Chat Completions has no tool for."""
        self._usage_in_stream = usage_in_stream
        self._sees = sees
        self._provider_tools = tuple(provider_tools)
        self._web_search = web_search
        self.provider_names = frozenset(map(name_of, provider_tools))

    def request(
        self, model: str, messages: Sequence[Message], tools: Sequence[OfferedTool], *, stream: bool, provider: str
    ) -> dict[str, Any]:
        """Return the request's body."""
        body: dict[str, Any] = {"model": model, "messages": list(self._encoded(messages, provider))}
        if tools or self._provider_tools:
            body["tools"] = [*map(encoded_tool, tools), *self._provider_tools]
        if stream:
            body["stream"] = True
        if stream and self._usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def options(self, model: str, asked: Mapping[str, Any], *, host: str, has_tools: bool) -> dict[str, Any]:
        """Return what the model is asked with besides, in the words that it takes."""
        has_tools = has_tools or bool(self._provider_tools)
        options = openai_options(asked, limit=limit_name(host, model), has_tools=has_tools)
        searches = self._web_search is not None and asked.get("tool_choice") != "none"
        return {"web_search_options": self._web_search, **options} if searches else options

    def objection(self, model: str, messages: Sequence[Message], asked: Mapping[str, Any]) -> str | None:
        """Return why the model must not be asked this; None if nothing is known against it."""
        return objection_to_images(model, messages, sees=self._sees) or objection_to_options(asked)

    def _encoded(self, messages: Sequence[Message], provider: str) -> Iterator[dict[str, Any]]:
        """The messages; the images of a batch follow its last result, because a result itself may hold text only."""
        images: list[dict[str, Any]] = []
        for message in messages:
            if images and not isinstance(message, ToolMessage):
                yield {"role": "user", "content": images}
                images = []
            yield encoded(message, provider)
            if self._sees and isinstance(message, ToolMessage):
                images += _encoded_images(message)
        if images:
            yield {"role": "user", "content": images}

    def reader(self, assembly: ReplyAssembly, address: str) -> CompletionReader:
        """Return a reader for one reply."""
        return CompletionReader(assembly, address)


def encoded(message: Message, provider: str) -> dict[str, Any]:
    """Return one message in the format of a request to `provider`."""
    match message:
        case AssistantMessage():
            return _encoded_assistant(message, provider)
        case ToolMessage():
            call_id = legal_id(message.tool_call_id, _LEGAL_ID)
            return {"role": "tool", "tool_call_id": call_id, "content": message.content}
        case UserMessage() if message.images:
            return _named(message, {"role": "user", "content": [_encoded_part(part) for part in message.parts]})
        case SystemMessage() | UserMessage():
            return _named(message, {"role": message.role, "content": message.content})


def encoded_tool(tool: OfferedTool) -> dict[str, Any]:
    """Return one tool on offer."""
    schema = as_strict(tool.input_schema) if tool.strict else tool.input_schema
    function = {"name": legal_name(tool.name), "description": tool.description, "parameters": schema}
    strict = {} if tool.strict is None else {"strict": tool.strict}
    return {"type": "function", "function": function | strict}


def _named(message: SystemMessage | UserMessage | AssistantMessage, said: dict[str, Any]) -> dict[str, Any]:
    return {**said, "name": message.name} if message.name else said


def _encoded_part(part: str | Image) -> dict[str, Any]:
    """Return text or an image; of an image that is kept no longer, what it was."""
    if isinstance(part, str) or not (part.url or part.data):
        return {"type": "text", "text": part if isinstance(part, str) else gone(part)}
    shown = {"url": part.url or f"data:{part.media_type};base64,{part.data}"}
    return {"type": "image_url", "image_url": {**shown, "detail": part.detail} if part.detail else shown}


def _encoded_images(message: ToolMessage) -> list[dict[str, Any]]:
    images = images_of(message)
    if not images:
        return []
    whose = f"Returned by {message.name} (call {legal_id(message.tool_call_id, _LEGAL_ID)}):"
    urls = (f"data:{essence_of(part.media_type)};base64,{part.data}" for part in images)
    return [{"type": "text", "text": whose}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def _encoded_assistant(message: AssistantMessage, provider: str) -> dict[str, Any]:
    own = _refused(message) | _cited(message, provider)
    if not message.tool_calls:
        content = message.content or (None if message.refusal else "")
        return _named(message, {"role": "assistant", "content": content} | own)
    calls = [_encoded_call(call, provider) for call in message.tool_calls]
    content = message.content or None
    asked = _named(message, {"role": "assistant", "content": content, "tool_calls": calls} | own)
    reasoning = extra_of(message, provider, REASONING)
    return asked if reasoning is None else asked | {REASONING: reasoning}


def _refused(message: AssistantMessage) -> dict[str, Any]:
    return {"refusal": message.refusal} if message.refusal else {}


def _cited(message: AssistantMessage, provider: str) -> dict[str, Any]:
    """Return what the provider has cited, for the provider itself."""
    parts = extra_of(message, provider, PARTS)
    annotations = parts.get("annotations") if isinstance(parts, dict) else None
    return {"annotations": annotations} if isinstance(annotations, list) else {}


def _encoded_call(call: RequestedCall, provider: str) -> dict[str, Any]:
    function = {"name": legal_name(call.name), "arguments": as_object_text(call.arguments)}
    asked = {"id": legal_id(call.id, _LEGAL_ID), "type": "function", "function": function}
    extra_content = extra_of(call, provider, EXTRA_CONTENT)
    return asked if extra_content is None else asked | {EXTRA_CONTENT: extra_content}
