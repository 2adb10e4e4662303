"""What a server of Chat Completions answers: the chunks of a stream, or one completion, into an assembly.

What a provider's own tools have done is theirs: citations (`annotations`: OpenAI's `web_search_options`, OpenRouter's
server tools) stay with the message and go back with it, and what stands among the calls without being one of a function
is counted and called by nobody. https://platform.openai.com/docs/guides/tools-web-search, `openai.types.chat`'s
ChatCompletionMessage, https://openrouter.ai/docs/guides/features/server-tools.

Pure. Lenient towards the many servers that speak it almost: missing ids and indices, arguments as objects, null
content, text in parts, `{}` before the real arguments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pydantic import JsonValue
from typing_extensions import TypedDict

from toolfleet.messages import TokenCounts, Usage
from toolfleet.orchestrator.errors import ModelReplyInvalid, TryAgain
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.faults import fault_in_stream
from toolfleet.orchestrator.models.foreign import Foreign
from toolfleet.orchestrator.models.protocol import FinishReason
from toolfleet.orchestrator.models.provider_tools import PARTS, counts as used_tools
from toolfleet.orchestrator.models.repeated import RepeatedText

DONE: Final = b"[DONE]"
EXTRA_CONTENT: Final = "extra_content"
REASONING: Final = "reasoning_content"
_FINISH_REASONS: Final = {
    "function_call": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
}
# OpenRouter, vLLM and SGLang, DeepSeek: what they say instead of an error once the stream has begun.
_GAVE_UP: Final = frozenset({"error", "abort", "insufficient_system_resource"})


# --- what we read ---------------------------------------------------------------------------------------------------


class FunctionPiece(TypedDict, total=False):
    """Name and arguments of a call, whole or in part; Ollama's own format and some gateways send an object."""

    name: str | None
    arguments: str | dict[str, Any] | None


class CallPiece(TypedDict, total=False):
    """A call, whole or in part."""

    index: int | None
    id: str | None
    type: Any
    function: FunctionPiece
    extra_content: dict[str, Any] | None


class ContentPart(TypedDict, total=False):
    """Text as a part, as Mistral sends it."""

    text: str | None


class Delta(TypedDict, total=False):
    """A reply's content, whole or in part."""

    content: str | list[ContentPart] | None
    refusal: str | None
    reasoning_content: str | None
    tool_calls: list[CallPiece] | None
    annotations: Any


class Choice(TypedDict, total=False):
    """One of the replies asked for; we ask for one."""

    delta: Delta | None
    message: Delta | None
    finish_reason: str | None


class ChatTokenCount(TypedDict, total=False):
    """Usage as the server counts it."""

    prompt_tokens: int | None
    completion_tokens: int | None
    prompt_tokens_details: dict[str, Any] | None
    completion_tokens_details: dict[str, Any] | None
    server_tool_use: Any


class ChatCompletion(TypedDict, total=False):
    """A chunk of a stream, or a whole reply."""

    choices: list[Choice] | None
    usage: ChatTokenCount | None
    model: str | None
    service_tier: str | None
    system_fingerprint: str | None
    error: Any


COMPLETION: Final = Foreign(ChatCompletion)


class CompletionReader:
    """Reads one stream of chunks, or one completion in a piece, into an assembly."""

    def __init__(self, assembly: ReplyAssembly, address: str) -> None:
        self._assembly = assembly
        self._address = address
        self._position_of_index: dict[int, int] = {}
        self._id_at: dict[int, str] = {}
        self._last: int | None = None
        self._finish_reason: str | None = None
        self._reasoning: list[str] = []
        self._reasoning_kept = 0
        self._annotations: list[JsonValue] = []
        self._not_ours: dict[int | str, str] = {}
        self._repeated = RepeatedText(self._read, _only_text_of)
        self.over = False

    @property
    def complete(self) -> bool:
        """A finish reason or the closing `[DONE]`; some servers send only one of them. The latter alone is no reply."""
        return self._finish_reason is not None or (self.over and not self._assembly.is_empty)

    def feed_texts(self, events: Sequence[bytes]) -> int:
        """Take the first of these events, as many as differ from the last one in their text alone; how many."""
        texts = self._repeated.texts_in(events)
        self._assembly.text("".join(texts))
        return len(texts)

    def feed(self, data: bytes) -> None:
        """Take one chunk."""
        if (text := self._repeated.text_in(data)) is not None:
            self._assembly.text(text)
            return
        said = data.strip()
        if said == DONE:
            self.over = True
        elif said:
            completion = self._read(data)
            self._take(completion)
            self._repeated.note(data, completion)

    def read_whole(self, body: bytes) -> None:
        """Take a reply that came in one piece."""
        completion = self._read(body)
        self._take(completion)
        if not completion.get("choices"):
            raise ModelReplyInvalid(f"{self._address} answered without any choice")

    def paused(self) -> None:
        """Nothing: no server of Chat Completions asks to go on."""

    def go_on(self) -> None:
        """Nothing is paused."""

    def repeat(self, paused: Any) -> None:
        """Nothing was paused."""

    def end(self) -> None:
        """Note that nothing more comes. Raises TryAgain where the server itself gave up."""
        reason = self._finish_reason or ""
        if reason in _GAVE_UP:
            raise TryAgain(f"{self._address} broke off its reply: it says {reason!r}")
        self._assembly.end(_FINISH_REASONS.get(reason, reason))

    def _read(self, data: bytes) -> ChatCompletion:
        return COMPLETION.read(data, self._address)

    def _take(self, completion: ChatCompletion) -> None:
        if error := completion.get("error"):
            raise fault_in_stream(error, self._address)
        self._note_facts(completion)
        if choices := completion.get("choices"):
            self._take_choice(choices[0])

    def _note_facts(self, completion: ChatCompletion) -> None:
        told = self._assembly
        told.model = completion.get("model") or told.model
        told.service_tier = completion.get("service_tier") or told.service_tier
        told.system_fingerprint = completion.get("system_fingerprint") or told.system_fingerprint
        if (counted := completion.get("usage")) is not None:
            told.usage = self._with_uses(_counted(counted))

    def _take_choice(self, choice: Choice) -> None:
        if reason := choice.get("finish_reason"):
            self._finish_reason = reason
        content = choice.get("delta")
        if content is None:
            content = choice.get("message") or {}
        if reasoning := content.get("reasoning_content"):
            self._reasoning.append(reasoning)
            self._assembly.think(reasoning)
        if refusal := content.get("refusal"):
            self._assembly.refuse(refusal)
        if text := content.get("content"):
            self._assembly.text(text if isinstance(text, str) else _joined(text))
        if isinstance(annotations := content.get("annotations"), list) and annotations:
            self._annotations += annotations
            self._assembly.keep({PARTS: {"annotations": list(self._annotations)}})
        for piece in content.get("tool_calls") or ():
            if not self._is_not_ours(piece):
                self._take_call(piece)

    def _is_not_ours(self, piece: CallPiece) -> bool:
        """Whether the piece is of something that the provider does itself: of another type, and of no function."""
        key = piece.get("id") or "" if (index := piece.get("index")) is None else index
        kind = piece.get("type")
        if (
            isinstance(kind, str)
            and kind not in {"", "function"}
            and "function" not in piece
            and key not in self._not_ours
        ):
            self._not_ours[key] = kind
            self._assembly.usage = self._with_uses(self._assembly.usage)
        return key in self._not_ours and "function" not in piece

    def _with_uses(self, usage: Usage) -> Usage:
        """The usage with what the provider's tools were used for, as it counts them where it does."""
        uses = {**Counter(self._not_ours.values()), **usage.provider_tools}
        return usage.model_copy(update={"provider_tools": uses}) if self._not_ours else usage

    def _take_call(self, piece: CallPiece) -> None:
        position = self._position(piece)
        if extra := piece.get("extra_content"):
            self._assembly.keep_with_call(position, {EXTRA_CONTENT: extra})
        self._assembly.extend_call(position, _arguments(piece))

    def _keep_reasoning(self) -> None:
        """Keep what was thought so far with a message that has a call: of any other nobody wants it back."""
        if self._reasoning_kept < len(self._reasoning):
            self._reasoning_kept = len(self._reasoning)
            self._assembly.keep({REASONING: "".join(self._reasoning)})

    def _position(self, piece: CallPiece) -> int:
        """Return the position of the call that this piece belongs to; opens one if it is the first of its call."""
        index = piece.get("index")
        position = self._continued(piece)
        if position is None or self._is_another(position, piece):
            call_id = piece.get("id")
            position = self._assembly.open_call(call_id, _name(piece))
            self._id_at[position] = call_id or ""
        if index is not None:
            self._position_of_index[index] = position
        self._last = position
        self._keep_reasoning()  # now, and not at the end: a reply that is cut after its first call needs it too
        return position

    def _continued(self, piece: CallPiece) -> int | None:
        """Return the call that the piece's index points to; without one, the call with its id, else the last call."""
        if (index := piece.get("index")) is not None:
            return self._position_of_index.get(index)
        if call_id := piece.get("id"):
            same_id = [position for position, known in self._id_at.items() if known == call_id]
            return same_id[-1] if same_id else None
        return self._last

    def _is_another(self, position: int, piece: CallPiece) -> bool:
        """Return whether the piece begins a new call although its index or id has been seen.

        Some servers give index 0, or one id, to every call. A piece with a name whose id is new, or that follows
        complete arguments, cannot continue the old one.
        """
        if not _name(piece):
            return False
        call_id = piece.get("id")
        new_id = bool(call_id) and call_id != self._id_at[position]
        return new_id or self._assembly.holds_object(position)


def _only_text_of(completion: ChatCompletion) -> str | None:
    """Return the text of a chunk that adds nothing else to the reply. Its facts are the same, however often noted."""
    choices = completion.get("choices")
    content = choices[0].get("delta") if choices else None
    if not content or any(value for name, value in content.items() if name != "content"):
        return None
    text = content.get("content")
    return text if isinstance(text, str) else None


def _joined(parts: list[ContentPart]) -> str:
    return "".join(part.get("text") or "" for part in parts)


def _name(piece: CallPiece) -> str:
    return piece.get("function", {}).get("name") or ""


def _arguments(piece: CallPiece) -> str:
    """Return the arguments as JSON text."""
    arguments = piece.get("function", {}).get("arguments")
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or ""


def _counted(counted: ChatTokenCount) -> Usage:
    return Usage(
        input_tokens=counted.get("prompt_tokens") or 0,
        output_tokens=counted.get("completion_tokens") or 0,
        input_details=_counts(counted.get("prompt_tokens_details")),
        output_details=_counts(counted.get("completion_tokens_details")),
        provider_tools=used_tools(counted.get("server_tool_use")),
    )


def _counts(details: dict[str, Any] | None) -> TokenCounts:
    return {name: number for name, number in (details or {}).items() if type(number) is int and number >= 0}
