"""A provider as strict as any: a real HTTP server that says what a test wrote, byte by byte, in both dialects.

It refuses a request that is not JSON by the letter in valid UTF-8, or whose calls and answers do not match, and keeps
why. What it says is written by the test, and need not be right at all.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Self

import orjson
from aiohttp import web

from toolfleet.orchestrator.models import AnthropicMessages, HttpOptions, OpenAIChat

ASCII_JSON = json.JSONEncoder(ensure_ascii=True)
DEEPEST = 128
QUICK = HttpOptions(first_wait_s=0.01, attempts=2, silence_s=20, timeout_s=30)


class StrictProvider:
    """`replies`: what it says next, as server-sent events (a list of texts) or as a whole body (bytes)."""

    def __init__(self) -> None:
        self.replies: deque[list[str] | bytes] = deque()
        self.refusals: list[str] = []
        self.requests: list[Any] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def openai(self, **options: Any) -> OpenAIChat:
        return OpenAIChat("strict", base_url=f"{self.url}/v1", api_key="k", http=QUICK, **options)

    def anthropic(self, **options: Any) -> AnthropicMessages:
        return AnthropicMessages("strict", base_url=self.url, api_key="k", http=QUICK, **options)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, check_chat, openai_text("done"))

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, check_messages, anthropic_text("done"))

    async def _reply(self, request: web.Request, check: Any, done: list[str]) -> web.StreamResponse:
        body = await request.read()
        try:
            self.requests.append(strictly(body))
            check(self.requests[-1])
        except (AssertionError, KeyError, ValueError) as refused:
            self.refusals.append(f"{type(refused).__name__}: {refused}")
            return web.json_response({"error": {"message": str(refused)[:200]}}, status=400)
        said = self.replies.popleft() if self.replies else done
        if isinstance(said, bytes):
            return web.Response(body=said, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in said:
            await response.write(f"data: {event}\n\n".encode())
        return response


# --- what it takes ----------------------------------------------------------------------------------------------------


def strictly(text: bytes) -> Any:
    """The value of a text that two strict parsers take: UTF-8, no lone halves, no NaN, no name twice, not too deep."""
    orjson.loads(text)
    value = json.loads(text.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    assert _depth(value) <= DEEPEST, "nested too deep"
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), "a name stands twice"
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def check_chat(request: Any) -> None:
    """Calls have arguments that are JSON objects, and each is answered before anything else is said."""
    open_ids: set[str] = set()
    for message in request["messages"]:
        if message["role"] == "tool":
            open_ids.remove(message["tool_call_id"])
            continue
        assert not open_ids, f"no answers to {open_ids}"
        ids = [call["id"] for call in message.get("tool_calls", ())]
        open_ids = set(ids)
        assert len(open_ids) == len(ids), "an id stands twice"
        for call in message.get("tool_calls", ()):
            assert isinstance(strictly(call["function"]["arguments"].encode()), dict)
    assert not open_ids, f"no answers to {open_ids}"


def check_messages(request: Any) -> None:
    """Roles take turns, and each use is answered in the next message."""
    open_ids: set[str] = set()
    for position, message in enumerate(request["messages"]):
        assert message["role"] == ("user", "assistant")[position % 2], "roles do not take turns"
        for block in message["content"]:
            if block["type"] == "tool_result":
                open_ids.remove(block["tool_use_id"])
            if block["type"] == "tool_use":
                assert isinstance(block["input"], dict)
                open_ids.add(block["id"])
        assert message["role"] == "assistant" or not open_ids, f"no answers to {open_ids}"


# --- what it says -----------------------------------------------------------------------------------------------------


def openai_text(text: str) -> list[str]:
    return [openai_chunk({"content": text}), openai_chunk({}, "stop"), "[DONE]"]


def openai_calls(*calls: tuple[str, list[str]]) -> list[str]:
    """Calls as (name, the pieces of its arguments)."""
    events = []
    for index, (name, pieces) in enumerate(calls):
        begun = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(openai_chunk({"tool_calls": [begun]}))
        events += (openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": each}}]}) for each in pieces)
    return [*events, openai_chunk({}, "tool_calls"), "[DONE]"]


def openai_chunk(delta: dict[str, Any], reason: str | None = None) -> str:
    return ASCII_JSON.encode({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def ended(reason: str, **delta: Any) -> list[str]:
    """A reply of one piece that ends for this reason."""
    return [openai_chunk(delta), openai_chunk({}, reason), "[DONE]"]


def anthropic_text(text: str) -> list[str]:
    begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return [*map(ASCII_JSON.encode, (begun, piece)), *anthropic_end("end_turn")]


def anthropic_calls(*calls: tuple[str, list[str]]) -> list[str]:
    events: list[dict[str, Any]] = []
    for index, (name, pieces) in enumerate(calls):
        block = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        for each in pieces:
            delta = {"type": "input_json_delta", "partial_json": each}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    return [*map(ASCII_JSON.encode, events), *anthropic_end("tool_use")]


def anthropic_end(reason: str) -> list[str]:
    return [
        ASCII_JSON.encode({"type": "message_delta", "delta": {"stop_reason": reason}}),
        ASCII_JSON.encode({"type": "message_stop"}),
    ]
