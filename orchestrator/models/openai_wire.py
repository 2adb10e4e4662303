"""The Chat Completions wire format: messages to a request, chunks to events.

Some providers want something back with the calls of a past turn, and refuse the next one without it: Gemini the
signatures of its thoughts (`extra_content` of a call), DeepSeek and Kimi the thoughts themselves (`reasoning_content`).
OpenAI itself refuses fields it does not know, so each is returned only to the host it came from.

Pure. Lenient towards the many servers that speak it almost: missing ids and indices, arguments as objects, null
content, text in parts, `{}` before the real arguments. Strict in what it sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolfleet.images import Image
from toolfleet.media import essence_of
from toolfleet.messages import (
    AssistantMessage,
    Message,
    RequestedCall,
    SystemMessage,
    TokenCounts,
    ToolMessage,
    Usage,
    UserMessage,
)
from toolfleet.orchestrator.errors import ModelReplyInvalid, TryAgain
from toolfleet.orchestrator.models.arguments import as_object_text
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.faults import fault_in_stream
from toolfleet.orchestrator.models.foreign import ForeignRecord, extra_of
from toolfleet.orchestrator.models.names import legal_id, legal_name
from toolfleet.orchestrator.models.objections import objection_to_images
from toolfleet.orchestrator.models.openai_options import limit_name, objection_to_options, openai_options
from toolfleet.orchestrator.models.protocol import FinishReason, ModelEvent, OfferedTool
from toolfleet.orchestrator.models.sight import gone, images_of

DONE = "[DONE]"
EXTRA_CONTENT = "extra_content"
REASONING = "reasoning_content"
# OpenAI refuses ids over 40 characters; which characters they have is up to each server.
_LEGAL_ID = re.compile(r".{1,40}")
_FINISH_REASONS = {
    "function_call": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
}
# OpenRouter, vLLM and SGLang, DeepSeek: what they say instead of an error once the stream has begun.
_GAVE_UP = frozenset({"error", "abort", "insufficient_system_resource"})


# --- what we read ---------------------------------------------------------------------------------------------------


class FunctionPiece(ForeignRecord):
    """Name and arguments of a call, whole or in part."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The arguments as JSON text; Ollama's own format and some gateways send an object."""
        if isinstance(self.arguments, dict):
            return json.dumps(self.arguments, ensure_ascii=False)
        return self.arguments or ""


class CallPiece(ForeignRecord):
    """A call, whole or in part."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece = FunctionPiece()
    extra_content: dict[str, Any] | None = None


class ContentPart(ForeignRecord):
    """Text as a part, as Mistral sends it."""

    text: str | None = None


class Delta(ForeignRecord):
    """A reply's content, whole or in part."""

    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None

    @property
    def text(self) -> str:
        """The text in whichever form it came."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class Choice(ForeignRecord):
    """One of the replies asked for; we ask for one."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class ChatTokenCount(ForeignRecord):
    """Usage as the server counts it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None

    @property
    def counted(self) -> Usage:
        """The same in our words."""
        return Usage(
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            input_details=_counts(self.prompt_tokens_details),
            output_details=_counts(self.completion_tokens_details),
        )


class ChatCompletion(ForeignRecord):
    """A chunk of a stream, or a whole reply."""

    choices: list[Choice] | None = None
    usage: ChatTokenCount | None = None
    model: str | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    error: Any = None


def _counts(details: dict[str, Any] | None) -> TokenCounts:
    return {name: number for name, number in (details or {}).items() if type(number) is int and number >= 0}


class OpenAIStreamReader:
    """Reads one stream of chunks."""

    def __init__(self, assembly: ReplyAssembly, address: str) -> None:
        self._assembly = assembly
        self._address = address
        self._position_of_index: dict[int, int] = {}
        self._id_at: dict[int, str] = {}
        self._last: int | None = None
        self._finish_reason: str | None = None
        self._reasoning: list[str] = []
        self.over = False

    @property
    def complete(self) -> bool:
        """A finish reason or the closing `[DONE]`; some servers send only one of them. The latter alone is no reply."""
        return self._finish_reason is not None or (self.over and not self._assembly.is_empty)

    def feed(self, data: str) -> Sequence[ModelEvent]:
        """Take one chunk."""
        if data.strip() == DONE:
            self.over = True
            return ()
        return self.take(ChatCompletion.read(data, self._address)) if data.strip() else ()

    def take(self, completion: ChatCompletion) -> Sequence[ModelEvent]:
        """Take one chunk, or a whole reply as if it were one."""
        if completion.error:
            raise fault_in_stream(completion.error, self._address)
        self._note_facts(completion)
        if not completion.choices:
            return ()
        choice = completion.choices[0]
        self._finish_reason = choice.finish_reason or self._finish_reason
        content = choice.delta or choice.message or Delta()
        self._reasoning.append(content.reasoning_content or "")
        self._assembly.refuse(content.refusal or "")
        events = [*self._assembly.think(content.reasoning_content or ""), *self._assembly.text(content.text)]
        for piece in content.tool_calls or ():
            position = self._position(piece)
            if piece.extra_content:
                self._assembly.keep_with_call(position, {EXTRA_CONTENT: piece.extra_content})
            events += self._assembly.extend_call(position, piece.function.text)
        return events

    def end(self) -> Sequence[ModelEvent]:
        """Return the events that only the end of the stream brings. Raises TryAgain where the server itself gave up."""
        reason = self._finish_reason or ""
        if reason in _GAVE_UP:
            raise TryAgain(f"{self._address} broke off its reply: it says {reason!r}")
        return self._assembly.end(_FINISH_REASONS.get(reason, reason))

    def _note_facts(self, completion: ChatCompletion) -> None:
        told = self._assembly
        told.model = completion.model or told.model
        told.service_tier = completion.service_tier or told.service_tier
        told.system_fingerprint = completion.system_fingerprint or told.system_fingerprint
        if completion.usage is not None:
            told.usage = completion.usage.counted

    def _keep_reasoning(self) -> None:
        reasoning = "".join(self._reasoning)
        if reasoning and self._last is not None:  # without a call nobody wants it back
            self._assembly.keep({REASONING: reasoning})

    def _position(self, piece: CallPiece) -> int:
        """Return the position of the call that this piece belongs to; opens one if it is the first of its call."""
        position = self._continued(piece)
        if position is None or self._is_another(position, piece):
            position = self._assembly.open_call(piece.id, piece.function.name or "")
            self._id_at[position] = piece.id or ""
        if piece.index is not None:
            self._position_of_index[piece.index] = position
        self._last = position
        self._keep_reasoning()  # now, and not at the end: a reply that is cut after its first call needs it too
        return position

    def _continued(self, piece: CallPiece) -> int | None:
        """Return the call that the piece's index points to; without one, the call with its id, else the last call."""
        if piece.index is not None:
            return self._position_of_index.get(piece.index)
        if piece.id:
            same_id = [position for position, call_id in self._id_at.items() if call_id == piece.id]
            return same_id[-1] if same_id else None
        return self._last

    def _is_another(self, position: int, piece: CallPiece) -> bool:
        """Return whether the piece begins a new call although its index or id has been seen.

        Some servers give index 0, or one id, to every call. A piece with a name whose id is new, or that follows
        complete arguments, cannot continue the old one.
        """
        if not piece.function.name:
            return False
        new_id = bool(piece.id) and piece.id != self._id_at[position]
        return new_id or self._assembly.holds_object(position)


class OpenAIWire:
    """Chat Completions."""

    path = "/chat/completions"

    def __init__(self, *, usage_in_stream: bool = True, sees: bool = False) -> None:
        self._usage_in_stream = usage_in_stream
        self._sees = sees

    def request(
        self, model: str, messages: Sequence[Message], tools: Sequence[OfferedTool], *, stream: bool, provider: str
    ) -> dict[str, Any]:
        """Return the request's body."""
        body: dict[str, Any] = {"model": model, "messages": list(self._encoded(messages, provider))}
        if tools:
            body["tools"] = [encoded_tool(tool) for tool in tools]
        if stream:
            body["stream"] = True
        if stream and self._usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def options(self, model: str, asked: Mapping[str, Any], *, host: str, has_tools: bool) -> dict[str, Any]:
        """Return what the model is asked with besides, in the words that it takes."""
        return openai_options(asked, limit=limit_name(host, model), has_tools=has_tools)

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

    def reader(self, assembly: ReplyAssembly, address: str) -> OpenAIStreamReader:
        """Return a reader for one stream."""
        return OpenAIStreamReader(assembly, address)

    def read_whole(self, body: bytes, assembly: ReplyAssembly, address: str) -> Sequence[ModelEvent]:
        """Return a reply that came in one piece."""
        completion = ChatCompletion.read(body, address)
        reader = OpenAIStreamReader(assembly, address)
        events = reader.take(completion)
        if not completion.choices:
            raise ModelReplyInvalid(f"{address} answered without any choice")
        return [*events, *reader.end()]


# --- what we send ---------------------------------------------------------------------------------------------------


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
    function = {"name": legal_name(tool.name), "description": tool.description, "parameters": tool.input_schema}
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
    if not message.tool_calls:
        content = message.content or (None if message.refusal else "")
        return _named(message, {"role": "assistant", "content": content} | _refused(message))
    calls = [_encoded_call(call, provider) for call in message.tool_calls]
    content = message.content or None
    asked = _named(message, {"role": "assistant", "content": content, "tool_calls": calls} | _refused(message))
    reasoning = extra_of(message, provider, REASONING)
    return asked if reasoning is None else asked | {REASONING: reasoning}


def _refused(message: AssistantMessage) -> dict[str, Any]:
    return {"refusal": message.refusal} if message.refusal else {}


def _encoded_call(call: RequestedCall, provider: str) -> dict[str, Any]:
    function = {"name": legal_name(call.name), "arguments": as_object_text(call.arguments)}
    asked = {"id": legal_id(call.id, _LEGAL_ID), "type": "function", "function": function}
    extra_content = extra_of(call, provider, EXTRA_CONTENT)
    return asked if extra_content is None else asked | {EXTRA_CONTENT: extra_content}
