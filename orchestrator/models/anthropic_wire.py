"""The Anthropic Messages wire format: a request's body, and server-sent events to ours.

The conversation itself is written by `anthropic_messages`.

Thinking blocks must come back, unchanged and in their places, with the calls they led to, or the next turn is refused:
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking. Each is kept with what follows it, the text or
the call; only the host that signed it sees it again.

Pure. Event types and their order: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from toolfleet.messages import (
    Message,
    SystemMessage,
    TokenCounts,
    Usage,
)
from toolfleet.orchestrator.errors import ModelReplyInvalid
from toolfleet.orchestrator.models.anthropic_messages import THINKING, encoded, encoded_tool, objection_to_messages
from toolfleet.orchestrator.models.anthropic_options import anthropic_options, objection_to_options
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.faults import fault_in_stream
from toolfleet.orchestrator.models.foreign import ForeignRecord
from toolfleet.orchestrator.models.objections import objection_to_images
from toolfleet.orchestrator.models.protocol import FinishReason, ModelEvent, OfferedTool

REDACTED = "redacted_thinking"
_FINISH_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
}
# https://docs.anthropic.com/en/api/service-tiers, in OpenAI's words where those mean the same.
_TIERS = {"standard": "default"}


# --- what we read ---------------------------------------------------------------------------------------------------


class Block(ForeignRecord):
    """A content block, whole or at its start. Kinds other than text, tool_use and thinking are passed over."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class StopDetails(ForeignRecord):
    """Why a reply was refused, where the API says so."""

    explanation: str | None = None


class BlockDelta(ForeignRecord):
    """More of a block, or of the message (`stop_reason`)."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class MessagesTokenCount(ForeignRecord):
    """Usage; what was read from or written to the cache is input too."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    service_tier: str | None = None

    @property
    def input_details(self) -> TokenCounts:
        """Those of them that were read from the cache, and written to it, as far as the API says."""
        known = {"cached_tokens": self.cache_read_input_tokens, "cache_write_tokens": self.cache_creation_input_tokens}
        return {name: number for name, number in known.items() if number is not None}

    @property
    def all_input(self) -> int:
        """Input tokens of all kinds."""
        cached = (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return (self.input_tokens or 0) + cached


class WholeMessage(ForeignRecord):
    """A message: whole, or empty at the start of a stream."""

    model: str | None = None
    content: list[Block] | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: MessagesTokenCount | None = None


class StreamEvent(ForeignRecord):
    """Any of the stream's events."""

    type: str
    index: int = 0
    message: WholeMessage | None = None
    content_block: Block | None = None
    delta: BlockDelta | None = None
    usage: MessagesTokenCount | None = None
    error: Any = None


class KeptThoughts:
    """Thinking blocks on their way into an assembly; each goes with the text or the call that follows it."""

    def __init__(self, assembly: ReplyAssembly) -> None:
        self._assembly = assembly
        self._waiting: list[JsonValue] = []
        self._open: Block | None = None

    def begin(self, block: Block) -> None:
        """A block of any kind begins."""
        self._open = block if block.type in {THINKING, REDACTED} else None

    def extend(self, delta: BlockDelta) -> None:
        """More of the block."""
        if self._open is not None:
            thinking = (self._open.thinking or "") + (delta.thinking or "")
            signature = (self._open.signature or "") + (delta.signature or "")
            self._open = self._open.model_copy(update={"thinking": thinking, "signature": signature})

    def end(self) -> None:
        """The block is whole. One without a signature would be refused when it comes back."""
        block, self._open = self._open, None
        if block is None:
            return
        if block.type == REDACTED:
            self._waiting.append({"type": REDACTED, "data": block.data or ""})
        elif block.signature:
            self._waiting.append({"type": THINKING, THINKING: block.thinking or "", "signature": block.signature})

    def before_text(self) -> None:
        """Text begins: what was thought so far goes before it."""
        if self._waiting:
            self._assembly.keep({THINKING: self._take()})

    def before_call(self, position: int) -> None:
        """A call begins: what was thought so far goes before it."""
        if self._waiting:
            self._assembly.keep_with_call(position, {THINKING: self._take()})

    def _take(self) -> list[JsonValue]:
        taken, self._waiting = self._waiting, []
        return taken


class AnthropicStreamReader:
    """Reads one stream of events."""

    def __init__(self, assembly: ReplyAssembly, address: str) -> None:
        self._assembly = assembly
        self._thoughts = KeptThoughts(assembly)
        self._address = address
        self._position_of_block: dict[int, int] = {}
        self._input_at_start: dict[int, str] = {}
        self._stop_reason: str | None = None
        self.over = False

    @property
    def complete(self) -> bool:
        """The stop reason has come, or the end of a message that says something."""
        return self._stop_reason is not None or (self.over and not self._assembly.is_empty)

    def feed(self, data: str) -> Sequence[ModelEvent]:
        """Take one event; unknown kinds and pings bring nothing."""
        event = StreamEvent.read(data, self._address)
        match event.type:
            case "message_start" | "message_delta":
                self._note_facts(event)
            case "content_block_start" if event.content_block is not None:
                return self._start(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                return self._extend(event.index, event.delta)
            case "content_block_stop":
                return self._stop(event.index)
            case "message_stop":
                self.over = True
            case "error":
                raise fault_in_stream(event.error, self._address)
        return ()

    def end(self) -> Sequence[ModelEvent]:
        """Return the events that only the end of the stream brings."""
        return self._assembly.end(_finish_reason(self._stop_reason))

    def _note_facts(self, event: StreamEvent) -> None:
        if event.message is not None and event.message.model:
            self._assembly.model = event.message.model
        if event.delta is not None:
            self._stop_reason = event.delta.stop_reason or self._stop_reason
            _note_refusal(self._assembly, event.delta.stop_details)
        counted = event.usage or (event.message.usage if event.message else None)
        if counted is not None:
            so_far = self._assembly.usage
            # The counts of message_delta are cumulative, and most often leave the input out.
            self._assembly.usage = Usage(
                input_tokens=counted.all_input or so_far.input_tokens,
                output_tokens=counted.output_tokens or so_far.output_tokens,
                input_details=counted.input_details or so_far.input_details,
            )
            _note_tier(self._assembly, counted)

    def _start(self, index: int, block: Block) -> Sequence[ModelEvent]:
        self._thoughts.begin(block)
        if block.type == "text":
            self._thoughts.before_text()
            return self._assembly.text(block.text or "")
        if block.type != "tool_use":
            return ()
        position = self._assembly.open_call(block.id, block.name or "")
        self._thoughts.before_call(position)
        self._position_of_block[index] = position
        self._input_at_start[index] = json.dumps(block.input or {}, ensure_ascii=False)
        return self._assembly.extend_call(position, "")

    def _extend(self, index: int, delta: BlockDelta) -> Sequence[ModelEvent]:
        self._thoughts.extend(delta)
        if delta.type == "thinking_delta":
            return self._assembly.think(delta.thinking or "")
        if delta.type == "text_delta":
            return self._assembly.text(delta.text or "")
        if delta.type != "input_json_delta" or index not in self._position_of_block:
            return ()
        if delta.partial_json:
            self._input_at_start.pop(index, None)
        return self._assembly.extend_call(self._position_of_block[index], delta.partial_json or "")

    def _stop(self, index: int) -> Sequence[ModelEvent]:
        self._thoughts.end()
        position = self._position_of_block.get(index)
        if position is None:
            return ()
        # A call without arguments gets no delta: its input is what the block began with.
        first = self._assembly.extend_call(position, self._input_at_start.pop(index, ""))
        return (*first, *self._assembly.end_call(position))


class AnthropicWire:
    """Anthropic Messages."""

    path = "/v1/messages"

    def __init__(self, *, max_tokens: int, sees: bool = True) -> None:
        self._max_tokens = max_tokens
        self._sees = sees

    def request(
        self, model: str, messages: Sequence[Message], tools: Sequence[OfferedTool], *, stream: bool, provider: str
    ) -> dict[str, Any]:
        """Return the request's body; `max_tokens` is not optional here."""
        turns = encoded(messages, provider, sees=self._sees)
        body: dict[str, Any] = {"model": model, "max_tokens": self._max_tokens, "messages": turns}
        system = "\n\n".join(message.content for message in messages if isinstance(message, SystemMessage))
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [encoded_tool(tool) for tool in tools]
        if stream:
            body["stream"] = True
        return body

    def options(self, model: str, asked: Mapping[str, Any], *, host: str, has_tools: bool) -> dict[str, Any]:  # noqa: ARG002  # the protocol's
        """Return what the model is asked with besides, in the words that it takes."""
        return anthropic_options(asked, has_tools=has_tools)

    def objection(self, model: str, messages: Sequence[Message], asked: Mapping[str, Any]) -> str | None:
        """Return why the model must not be asked this; None if nothing is known against it."""
        return (
            objection_to_images(model, messages, sees=self._sees)
            or objection_to_messages(messages)
            or objection_to_options(asked)
        )

    def reader(self, assembly: ReplyAssembly, address: str) -> AnthropicStreamReader:
        """Return a reader for one stream."""
        return AnthropicStreamReader(assembly, address)

    def read_whole(self, body: bytes, assembly: ReplyAssembly, address: str) -> Sequence[ModelEvent]:
        """Return a reply that came in one piece."""
        message = WholeMessage.read(body, address)
        if message.content is None:
            raise ModelReplyInvalid(f"{address} answered without content")
        assembly.model = message.model or assembly.model
        if message.usage is not None:
            output_tokens = message.usage.output_tokens or 0
            assembly.usage = Usage(
                input_tokens=message.usage.all_input,
                output_tokens=output_tokens,
                input_details=message.usage.input_details,
            )
            _note_tier(assembly, message.usage)
        _note_refusal(assembly, message.stop_details)
        events: list[ModelEvent] = []
        thoughts = KeptThoughts(assembly)
        for block in message.content:
            events += _whole_block(block, assembly, thoughts)
        return [*events, *assembly.end(_finish_reason(message.stop_reason))]


def _whole_block(block: Block, assembly: ReplyAssembly, thoughts: KeptThoughts) -> Sequence[ModelEvent]:
    thoughts.begin(block)
    thoughts.end()
    if block.type == "text":
        thoughts.before_text()
        return assembly.text(block.text or "")
    if block.type == THINKING:
        return assembly.think(block.thinking or "")
    if block.type != "tool_use":
        return ()
    position = assembly.open_call(block.id, block.name or "")
    thoughts.before_call(position)
    first = assembly.extend_call(position, json.dumps(block.input or {}, ensure_ascii=False))
    return (*first, *assembly.end_call(position))


def _note_tier(assembly: ReplyAssembly, counted: MessagesTokenCount) -> None:
    tier = counted.service_tier or ""
    assembly.service_tier = _TIERS.get(tier, tier) or assembly.service_tier


def _note_refusal(assembly: ReplyAssembly, details: StopDetails | None) -> None:
    if details is not None:
        assembly.refuse(details.explanation or "")


def _finish_reason(stop_reason: str | None) -> str:
    return _FINISH_REASONS.get(stop_reason or "", stop_reason or "")
