"""What Anthropic Messages answers: the events of a stream, or one message, into an assembly.

Thinking blocks must come back, unchanged and in their places, with the calls they led to, or the next turn is refused:
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking. Each is kept with what follows it, the text or
the call; only the host that signed it sees it again. What the provider's own tools do is kept by `anthropic_blocks`.

A reply that the provider has only paused (`pause_turn`) is asked for the rest of, with all of it as it came:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools

Pure. Event types and their order: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Required, cast

from pydantic import ConfigDict, JsonValue, with_config
from typing_extensions import TypedDict

from toolfleet.messages import TokenCounts, Usage
from toolfleet.orchestrator.errors import ModelReplyInvalid
from toolfleet.orchestrator.models.anthropic_blocks import REDACTED, THINKING, KeptBlocks
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.faults import fault_in_stream
from toolfleet.orchestrator.models.foreign import Foreign
from toolfleet.orchestrator.models.protocol import FinishReason
from toolfleet.orchestrator.models.provider_tools import counts
from toolfleet.orchestrator.models.repeated import RepeatedText

PAUSED: Final = "pause_turn"
_FINISH_REASONS: Final = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
    PAUSED: FinishReason.PAUSED,
}
# https://docs.anthropic.com/en/api/service-tiers, in OpenAI's words where those mean the same.
_TIERS: Final = {"standard": "default"}


# --- what we read ---------------------------------------------------------------------------------------------------


@with_config(ConfigDict(extra="allow"))
class Block(TypedDict, total=False):
    """A content block, whole or at its start. Kinds other than text, tool_use and thinking are the provider's own."""

    type: Required[str]
    text: str | None
    thinking: str | None
    signature: str | None
    data: str | None
    id: str | None
    name: str | None
    input: dict[str, Any] | None


class StopDetails(TypedDict, total=False):
    """Why a reply was refused, where the API says so."""

    explanation: str | None


@with_config(ConfigDict(extra="allow"))
class BlockDelta(TypedDict, total=False):
    """More of a block, or of the message (`stop_reason`)."""

    type: str | None
    text: str | None
    thinking: str | None
    signature: str | None
    partial_json: str | None
    stop_reason: str | None
    stop_details: StopDetails | None
    container: Any
    """Where the provider has run code."""


class MessagesTokenCount(TypedDict, total=False):
    """Usage; what was read from or written to the cache is input too."""

    input_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    output_tokens: int | None
    service_tier: str | None
    server_tool_use: Any


class WholeMessage(TypedDict, total=False):
    """A message: whole, or empty at the start of a stream."""

    model: str | None
    content: list[Block] | None
    stop_reason: str | None
    stop_details: StopDetails | None
    container: Any
    usage: MessagesTokenCount | None


class StreamEvent(TypedDict, total=False):
    """Any of the stream's events."""

    type: Required[str]
    index: int
    message: WholeMessage | None
    content_block: Block | None
    delta: BlockDelta | None
    usage: MessagesTokenCount | None
    error: Any


MESSAGE: Final = Foreign(WholeMessage)
EVENT: Final = Foreign(StreamEvent)


class KeptThoughts:
    """Thinking blocks on their way into an assembly; each goes with the text or the call that follows it."""

    def __init__(self, assembly: ReplyAssembly) -> None:
        self._assembly = assembly
        self._waiting: list[JsonValue] = []
        self._open: Block | None = None
        self._thinking: list[str] = []
        self._signature: list[str] = []

    def begin(self, block: Block) -> None:
        """A block of any kind begins."""
        self._open = block if block["type"] in {THINKING, REDACTED} else None
        self._thinking = [block.get("thinking") or ""]
        self._signature = [block.get("signature") or ""]

    def extend(self, delta: BlockDelta) -> None:
        """More of the block."""
        if self._open is not None:
            self._thinking.append(delta.get("thinking") or "")
            self._signature.append(delta.get("signature") or "")

    def end(self) -> JsonValue:
        """The block is whole; the thought that it is. One without a signature would be refused when it comes back."""
        block, self._open = self._open, None
        if block is None:
            return None
        signature = "".join(self._signature)
        thought: JsonValue = None
        if block["type"] == REDACTED:
            thought = {"type": REDACTED, "data": block.get("data") or ""}
        elif signature:
            thought = {"type": THINKING, THINKING: "".join(self._thinking), "signature": signature}
        self._waiting += [] if thought is None else [thought]
        return thought

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


@dataclass(frozen=True, slots=True)
class PausedReply:
    """A reply as far as it has come, for the request that asks for the rest of it."""

    content: list[dict[str, Any]]
    usage: Usage
    container: str

    def next_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request for the rest: the same once more, behind it what was said so far."""
        told = {**body, "messages": [*body["messages"], {"role": "assistant", "content": self.content}]}
        return {**told, "container": self.container} if self.container else told


class MessageReader:
    """Reads one reply into an assembly: a stream of events or a whole message, and the rest of one that paused."""

    def __init__(self, assembly: ReplyAssembly, address: str) -> None:
        self._assembly = assembly
        self._thoughts = KeptThoughts(assembly)
        self._blocks = KeptBlocks(assembly, address)
        self._address = address
        self._position_of_block: dict[int, int] = {}
        self._input_at_start: dict[int, str] = {}
        self._stop_reason: str | None = None
        self._usage = Usage()
        self._usage_before = Usage()
        self._tools_before: Counter[str] = Counter()
        self._repeated = RepeatedText(self._read, _only_text_of)
        self.over = False

    @property
    def complete(self) -> bool:
        """The stop reason has come, or the end of a message that says something."""
        return self._stop_reason is not None or (self.over and not self._assembly.is_empty)

    def paused(self) -> PausedReply | None:
        """Return what the rest is to be asked for with; None where none is to come, or our results come first."""
        if self._stop_reason != PAUSED or self._assembly.has_calls:
            return None
        self._tell_usage()
        content = self._blocks.as_sent()
        return PausedReply(content, self._assembly.usage, self._blocks.container) if content else None

    def go_on(self) -> None:
        """Expect the rest of a reply that was paused."""
        self._stop_reason, self.over = None, False
        self._position_of_block, self._input_at_start = {}, {}
        self._usage = Usage()
        self._usage_before, self._tools_before = self._assembly.usage, self._blocks.uses.copy()
        self._repeated = RepeatedText(self._read, _only_text_of)

    def repeat(self, paused: PausedReply) -> None:
        """Begin with what had come of the reply when it was paused, and expect the rest."""
        for block in paused.content:
            self._take_whole(cast("Block", block))
        self._blocks.container = paused.container
        self._assembly.usage = paused.usage
        self.go_on()

    def feed_texts(self, events: Sequence[bytes]) -> int:
        """Take the first of these events, as many as differ from the last one in their text alone; how many."""
        texts = self._repeated.texts_in(events)
        self._assembly.text("".join(texts))
        return len(texts)

    def feed(self, data: bytes) -> None:
        """Take one event; unknown kinds and pings bring nothing."""
        if (text := self._repeated.text_in(data)) is not None:
            self._assembly.text(text)
            return
        event = self._read(data)
        self._take(event)
        self._repeated.note(data, event)

    def _read(self, data: bytes) -> StreamEvent:
        return EVENT.read(data, self._address)

    def _take(self, event: StreamEvent) -> None:
        match event["type"]:
            case "content_block_delta" if (delta := event.get("delta")) is not None:
                self._extend(event.get("index", 0), delta)
            case "content_block_start" if (block := event.get("content_block")) is not None:
                self._start(event.get("index", 0), block)
            case "content_block_stop":
                self._stop(event.get("index", 0))
            case "message_start" | "message_delta":
                self._note_facts(event)
            case "message_stop":
                self.over = True
            case "error":
                raise fault_in_stream(event.get("error"), self._address)

    def read_whole(self, body: bytes) -> None:
        """Take a reply that came in one piece."""
        message = MESSAGE.read(body, self._address)
        blocks = message.get("content")
        if blocks is None:
            raise ModelReplyInvalid(f"{self._address} answered without content")
        self._note_message(message)
        self._stop_reason = message.get("stop_reason")
        self._note_refusal(message.get("stop_details"))
        for block in blocks:
            self._take_whole(block)

    def end(self) -> None:
        """Note that nothing more comes."""
        reason = self._stop_reason or ""
        if reason == PAUSED and self._assembly.has_calls:
            reason = "tool_use"  # it goes on with our results
        if self._blocks.uses:
            self._tell_usage()
        self._assembly.end(_FINISH_REASONS.get(reason, reason))

    def _note_facts(self, event: StreamEvent) -> None:
        if (delta := event.get("delta")) is not None:
            self._note_container(delta.get("container"))
            self._stop_reason = delta.get("stop_reason") or self._stop_reason
            self._note_refusal(delta.get("stop_details"))
        message = event.get("message") or {}
        if (counted := event.get("usage")) is not None:
            message = {**message, "usage": counted}
        self._note_message(message)

    def _note_message(self, message: WholeMessage) -> None:
        told = self._assembly
        told.model = message.get("model") or told.model
        self._note_container(message.get("container"))
        if (counted := message.get("usage")) is not None:
            # The counts of message_delta are cumulative, and most often leave the input out.
            self._usage = Usage(
                input_tokens=_all_input(counted) or self._usage.input_tokens,
                output_tokens=counted.get("output_tokens") or self._usage.output_tokens,
                input_details=_input_details(counted) or self._usage.input_details,
                provider_tools=counts(counted.get("server_tool_use")) or self._usage.provider_tools,
            )
            self._tell_usage()
            tier = counted.get("service_tier") or ""
            told.service_tier = _TIERS.get(tier, tier) or told.service_tier

    def _tell_usage(self) -> None:
        """Count the uses of the provider's tools: as it counts them, where it does."""
        uses = self._blocks.uses - self._tools_before
        used = {name: number for name, number in {**uses, **self._usage.provider_tools}.items() if number}
        self._assembly.usage = self._usage_before + self._usage.model_copy(update={"provider_tools": used})

    def _note_container(self, container: object) -> None:
        match container:
            case {"id": str(id_)}:
                self._blocks.container = id_

    def _note_refusal(self, details: StopDetails | None) -> None:
        if details is not None:
            self._assembly.refuse(details.get("explanation") or "")

    def _start(self, index: int, block: Block) -> None:
        self._thoughts.begin(block)
        self._blocks.begin(block)
        match block["type"]:
            case "text":
                self._thoughts.before_text()
                self._assembly.text(block.get("text") or "")
            case "tool_use":
                self._position_of_block[index] = self._open_call(block)
                self._input_at_start[index] = _written(block)
                self._assembly.extend_call(self._position_of_block[index], "")

    def _extend(self, index: int, delta: BlockDelta) -> None:
        self._thoughts.extend(delta)
        self._blocks.extend(delta)
        match delta.get("type"):
            case "text_delta":
                self._assembly.text(delta.get("text") or "")
            case "thinking_delta":
                self._assembly.think(delta.get("thinking") or "")
            case "input_json_delta" if index in self._position_of_block:
                piece = delta.get("partial_json") or ""
                if piece:
                    self._input_at_start.pop(index, None)
                self._assembly.extend_call(self._position_of_block[index], piece)

    def _stop(self, index: int) -> None:
        thought = self._thoughts.end()
        position = self._position_of_block.get(index)
        self._blocks.end(thought, position)
        if position is not None:
            # A call without arguments gets no delta: its input is what the block began with.
            self._assembly.extend_call(position, self._input_at_start.pop(index, ""))
            self._assembly.end_call(position)

    def _take_whole(self, block: Block) -> None:
        self._thoughts.begin(block)
        self._blocks.begin(block)
        thought, position = self._thoughts.end(), None
        match block["type"]:
            case "text":
                self._thoughts.before_text()
                self._assembly.text(block.get("text") or "")
            case "thinking":
                self._assembly.think(block.get("thinking") or "")
            case "tool_use":
                position = self._open_call(block)
                self._assembly.extend_call(position, _written(block))
        self._blocks.end(thought, position)
        if position is not None:
            self._assembly.end_call(position)

    def _open_call(self, block: Block) -> int:
        position = self._assembly.open_call(block.get("id"), block.get("name") or "")
        self._thoughts.before_call(position)
        return position


def _only_text_of(event: StreamEvent) -> str | None:
    """Return the text of an event that only adds it to the reply."""
    delta = event.get("delta")
    is_text = event["type"] == "content_block_delta" and delta is not None and delta.get("type") == "text_delta"
    return delta.get("text") if is_text and delta is not None else None


def _written(block: Block) -> str:
    return json.dumps(block.get("input") or {}, ensure_ascii=False)


def _all_input(counted: MessagesTokenCount) -> int:
    """Return the input tokens of all kinds."""
    cached = (counted.get("cache_creation_input_tokens") or 0) + (counted.get("cache_read_input_tokens") or 0)
    return (counted.get("input_tokens") or 0) + cached


def _input_details(counted: MessagesTokenCount) -> TokenCounts:
    """Return those of them that were read from the cache, and written to it, as far as the API says."""
    known = {
        "cached_tokens": counted.get("cache_read_input_tokens"),
        "cache_write_tokens": counted.get("cache_creation_input_tokens"),
    }
    return {name: number for name, number in known.items() if number is not None}
