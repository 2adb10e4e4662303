"""A model behind a real HTTP server that writes its replies slowly: call by call, and only as far as a test lets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from toolfleet.orchestrator.models import OpenAIChat

NAME = "slow-writer"

Asked = tuple[str, str, str]
"""A call: id, tool, arguments."""


@dataclass
class Reply:
    """Calls, so many seconds apart. It ends when `goes_on` is set; with `breaks` the connection is cut instead."""

    calls: Sequence[Asked] = ()
    pause_s: float = 0.0
    text: str = ""
    tokens: int = 1
    breaks: bool = False
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.goes_on.set()

    def held(self) -> Reply:
        """The same, written to the last call and then not ended until `goes_on` is set."""
        self.goes_on.clear()
        return self


class SlowWriter:
    """Gives the replies that it was made with, then "done". `asked` are the bodies of the requests."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = list(replies)
        self.asked: list[dict[str, Any]] = []
        self.base_url = ""

    def model(self) -> OpenAIChat:
        """A client of this server; each is closed with its orchestrator."""
        return OpenAIChat(NAME, base_url=self.base_url, api_key="none")

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        reply = self._replies.pop(0) if self._replies else Reply(text="done")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):
            await self._write(response, request, reply)
        return response

    async def _write(self, response: web.StreamResponse, request: web.Request, reply: Reply) -> None:
        if reply.text:
            await response.write(_event({"delta": {"content": reply.text}}))
        for index, (id_, tool, arguments) in enumerate(reply.calls):
            call = {"index": index, "id": id_, "function": {"name": tool, "arguments": arguments}}
            await response.write(_event({"delta": {"tool_calls": [call]}}))
            await asyncio.sleep(reply.pause_s)
        await reply.goes_on.wait()
        if reply.breaks and request.transport is not None:
            request.transport.abort()
            return
        await response.write(_event({"delta": {}, "finish_reason": "tool_calls" if reply.calls else "stop"}))
        usage = {"prompt_tokens": reply.tokens, "completion_tokens": 0}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")
        await response.write_eof()


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


@asynccontextmanager
async def slow_writer(*replies: Reply) -> AsyncIterator[SlowWriter]:
    """The server, on a free port, until the block is left."""
    writer = SlowWriter(replies)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", writer.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    writer.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield writer
    finally:
        for reply in replies:
            reply.goes_on.set()
        await runner.cleanup()
