"""What Anthropic's own tools do in a reply: kept block by block, and given back as it came. Pure.

A `server_tool_use` and its result stand between texts, which may cite the result; all of it goes back in its order with
the next request, encrypted content and citations unchanged, or the provider refuses the conversation:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools and `…/tool-use/web-search-tool`. The blocks'
forms are those of `anthropic.types.ContentBlock` and `RawContentBlockDelta` of its SDK.

Text and arguments of calls are not kept twice: of a text its length stands here, of a call its place. So what an
interceptor has taken out of a reply is nowhere, and an id that had to be another one is the same everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.errors import ModelReplyInvalid
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.provider_tools import PARTS
from toolfleet.strict_json import encodable

TEXT: Final = "text"
TOOL_USE: Final = "tool_use"
TOOL_RESULT: Final = "tool_result"
THINKING: Final = "thinking"
REDACTED: Final = "redacted_thinking"

_CALLS_OWN: Final = frozenset({"type", "id", "name", "input"})
"""What is kept of a call elsewhere; `caller` and the like stay with its block."""
_DIGEST_LENGTH: Final = 16


class KeptBlocks:
    """The blocks of a reply on their way into an assembly; kept there from the first one on that is the provider's."""

    def __init__(self, assembly: ReplyAssembly, address: str) -> None:
        self._assembly = assembly
        self._address = address
        self._blocks: list[JsonValue] = []
        self._has_own = False
        self._open: dict[str, Any] = {}
        self._written: list[str] = []
        self._chars = 0
        self.container = ""
        self.uses: Counter[str] = Counter()
        """How often the provider's tools were used, by name."""

    def begin(self, block: Mapping[str, Any]) -> None:
        """A block of any kind begins, or has come whole."""
        self._open = dict(block)
        self._written = []

    def extend(self, delta: Mapping[str, Any]) -> None:
        """More of the block, where that is not a text, a thought or a call: these are put together elsewhere."""
        kind = self._open.get("type")
        if delta.get("type") == "citations_delta":
            self._open["citations"] = [*(self._open.get("citations") or ()), delta.get("citation")]
        elif kind in {None, TEXT, THINKING, REDACTED, TOOL_USE}:
            return
        elif delta.get("type") == "input_json_delta":
            self._written.append(delta.get("partial_json") or "")
        else:
            for name, piece in delta.items():
                if name != "type" and isinstance(piece, str):
                    self._open[name] = (self._open.get(name) or "") + piece

    def end(self, thought: JsonValue = None, position: int | None = None) -> None:
        """The block is whole: a thought, the call at this position, or what `begin` was told."""
        block, self._open = self._open, {}
        match block.get("type"):
            case None:
                return
            case "text":
                self._add_text(block.get("citations"))
            case "thinking" | "redacted_thinking":
                self._blocks += [] if thought is None else [thought]
            case "tool_use":
                more = {name: value for name, value in block.items() if name not in _CALLS_OWN}
                self._blocks.append({"type": TOOL_USE, "call": position, **more})
            case kind:
                self._add_own(block, str(kind))
        if self._has_own:
            # Now, and not at the end: a reply that is cut after its first call needs them too.
            self._assembly.keep_instead({PARTS: self._kept()})

    def as_sent(self) -> list[dict[str, Any]]:
        """Return the reply so far as it goes back. Only for one without calls."""
        message = AssistantMessage(content=encodable(self._assembly.said))
        return given_back(message, self._kept(), lambda _: {}) or []

    def _add_text(self, citations: list[JsonValue] | None) -> None:
        chars = len(self._assembly.said)
        cited: dict[str, JsonValue] = {"citations": citations} if citations else {}
        self._has_own = self._has_own or bool(citations)
        self._blocks.append({"type": TEXT, "chars": chars - self._chars, **cited})
        self._chars = chars

    def _add_own(self, block: dict[str, Any], kind: str) -> None:
        if written := "".join(self._written):
            try:
                block["input"] = json.loads(written)
            except ValueError as error:
                raise ModelReplyInvalid(f"{self._address} sent a {kind} whose input is no JSON: {error}") from error
        self._has_own = True
        self._blocks.append(block)
        if kind.endswith(TOOL_USE):
            self.uses[str(block.get("name"))] += 1

    def _kept(self) -> JsonValue:
        kept: dict[str, JsonValue] = {"blocks": self._blocks, "said": _digest(self._assembly.said)}
        return {**kept, "container": self.container} if self.container else kept


def given_back(
    message: AssistantMessage, kept: object, use_of: Callable[[RequestedCall], dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return the blocks of a reply as they came; None where nothing was kept of them.

    Of a text that is another one by now the words count, and stand in one piece, without citations.
    """
    match kept:
        case {"blocks": list(blocks), "said": str(said)}:
            return list(_placed(message, [block for block in blocks if isinstance(block, dict)], said, use_of))
        case _:
            return None


def _placed(
    message: AssistantMessage,
    blocks: Sequence[dict[str, Any]],
    said: str,
    use_of: Callable[[RequestedCall], dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    texts = [block for block in blocks if block.get("type") == TEXT]
    lengths = [block["chars"] if isinstance(block.get("chars"), int) else 0 for block in texts]
    told = sum(lengths)
    is_same = _digest(message.content[:told]) == said
    at, calls = 0, dict(enumerate(message.tool_calls))
    for block in blocks:
        match block:
            case {"type": "text"}:
                length = lengths.pop(0) if is_same else len(message.content) - at
                cited = {"citations": block["citations"]} if is_same and block.get("citations") else {}
                yield from _text(message, message.content[at : at + length], cited)
                at += length
            case {"type": "tool_use"}:
                if (call := calls.pop(block.get("call", -1), None)) is not None:
                    more = {name: value for name, value in block.items() if name not in {*_CALLS_OWN, "call"}}
                    yield {**use_of(call), **more}
            case _:
                yield block
    # What came after the last block that was whole.
    yield from _text(message, message.content[at:], {})
    yield from _text(message, message.refusal, {})
    yield from map(use_of, calls.values())


def _text(message: AssistantMessage, text: str, cited: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a text as a block. The API refuses empty ones, and blanks where they are all that is said."""
    if text and (message.content.strip() or text.strip()):
        yield {"type": TEXT, "text": text, **cited}


def paired(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns without uses and results of the provider's tools whose other half is not there.

    A use at the end stays: the provider is about to run it, with the rest of a paused reply or with our results.
    """
    replies = [turn for turn in turns if turn["role"] == "assistant"]
    last = replies[-1]["content"] if replies else []
    may_wait = turns[-1]["role"] == "assistant" or any(block.get("type") == TOOL_USE for block in last)
    answered = {block["tool_use_id"] for turn in replies for block in turn["content"] if _is_result(block)}
    used: set[Any] = set()
    whole = []
    for turn in turns:
        if turn["role"] == "assistant":
            kept = []
            for block in turn["content"]:
                if _is_use(block):
                    if block.get("id") not in answered and not (may_wait and turn is replies[-1]):
                        continue
                    used.add(block.get("id"))
                elif _is_result(block) and block["tool_use_id"] not in used:
                    continue
                kept.append(block)
            turn = {**turn, "content": kept}  # noqa: PLW2901  # the same turn, without halves
        if turn["content"]:
            whole.append(turn)
    return whole


def _is_use(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return kind != TOOL_USE and isinstance(kind, str) and kind.endswith(TOOL_USE)


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") != TOOL_RESULT and isinstance(block.get("tool_use_id"), str)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
