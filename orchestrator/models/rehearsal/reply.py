"""The server's side of Chat Completions: a reply in one piece or as the chunks of a stream, in any dialect.

Pure; everything in a reply depends on the request alone, its ids too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.models.rehearsal.faults import Dialect
from toolfleet.orchestrator.models.rehearsal.request import signed

REHEARSAL_MODEL = "toolfleet-rehearsal"
CHARACTERS_PER_TOKEN = 4
TOKEN_COUNT_NOTE = "rehearsal: a token is counted for every 4 characters"  # noqa: S105  # tokens of text, no secret
PIECE_LENGTH = 24


class Reply:
    """One reply, ready to be written in a dialect."""

    def __init__(self, message: AssistantMessage, request_body: bytes, dialect: Dialect) -> None:
        self._message = message
        self._digest = hashlib.sha256(request_body).hexdigest()
        self._dialect = dialect
        self._usage = {
            "prompt_tokens": len(request_body) // CHARACTERS_PER_TOKEN,
            "completion_tokens": len(message.model_dump_json()) // CHARACTERS_PER_TOKEN,
        }

    def whole(self) -> dict[str, Any]:
        """Return the reply in one piece."""
        message: dict[str, Any] = {"role": "assistant", "content": self._message.content or None}
        if self._message.tool_calls:
            message["tool_calls"] = [self._whole_call(position) for position in range(len(self._message.tool_calls))]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return self._envelope("chat.completion", [choice]) | {"usage": self._usage}

    def chunks(self, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """Yield the reply as the chunks of a stream."""
        yield self._chunk({"role": "assistant", "content": None if self._message.tool_calls else ""})
        for piece in _pieces(self._message.content):
            yield self._chunk({"content": piece})
        for call_delta in self._call_deltas():
            yield self._chunk({"tool_calls": [call_delta]})
        yield self._chunk({}, self._finish_reason)
        if with_usage:
            yield self._envelope("chat.completion.chunk", []) | {"usage": self._usage}

    @property
    def _finish_reason(self) -> str:
        return "tool_calls" if self._message.tool_calls else "stop"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return self._envelope("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish_reason}])

    def _envelope(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._digest[:24]}",
            "object": kind,
            "created": 0,
            "model": REHEARSAL_MODEL,
            "system_fingerprint": TOKEN_COUNT_NOTE,
            "choices": choices,
        }

    def _call_deltas(self) -> Iterator[dict[str, Any]]:
        per_call = [list(self._deltas_of(position)) for position in range(len(self._message.tool_calls))]
        if self._dialect.indices != "interleaved":
            return chain.from_iterable(per_call)
        return (delta for deltas in zip_longest(*per_call) for delta in deltas if delta is not None)

    def _deltas_of(self, position: int) -> Iterator[dict[str, Any]]:
        """Yield one call: its head, then its arguments in pieces."""
        arguments = self._message.tool_calls[position].arguments
        if self._dialect.arguments == "object":
            yield self._indexed(position, self._whole_call(position))
            return
        head = self._whole_call(position)
        head["function"]["arguments"] = "{}" if self._dialect.arguments == "after_placeholder" else ""
        yield self._indexed(position, head)
        for piece in _pieces(arguments):
            yield self._indexed(position, {"function": {"arguments": piece}})

    def _indexed(self, position: int, delta: dict[str, Any]) -> dict[str, Any]:
        match self._dialect.indices:
            case "missing":
                return delta
            case "zero":
                return {"index": 0, **delta}
            case _:
                return {"index": position, **delta}

    def _whole_call(self, position: int) -> dict[str, Any]:
        call = self._message.tool_calls[position]
        arguments = json.loads(call.arguments) if self._dialect.arguments == "object" else call.arguments
        named = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        match self._dialect.ids:
            case "missing":
                return named
            case "doubled":
                return {"id": "call_0", **named}
            case _:
                call_id = f"call_{self._digest[:16]}_{position}"
                extras = {"extra_content": signed(call.name, call_id)} if self._dialect.signs_calls else {}
                return {"id": call_id, **named, **extras}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_LENGTH):
        yield text[start : start + PIECE_LENGTH]
