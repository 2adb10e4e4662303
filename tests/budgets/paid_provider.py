"""A provider behind a real HTTP server that counts tokens as it is told to, and keeps within the bound of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from toolfleet.orchestrator.models import OpenAIChat

NAME = "paid"
PRICES = {NAME: {"input": 0.0, "output": 100.0}}
"""500 tokens of a reply are $0.05."""

Asked = Sequence[tuple[str, Any]]
"""Calls: tool and arguments."""


@dataclass
class Bill:
    """One reply: what it says and comes to. `takes_s` of it nothing is heard."""

    tokens: int = 500
    input_tokens: int = 0
    calls: Asked = ()
    text: str = "done"
    takes_s: float = 0.0


@dataclass
class PaidProvider:
    """Answers each request with what `next_reply` makes of its body."""

    next_reply: Callable[[dict[str, Any]], Bill]
    asked: list[dict[str, Any]] = field(default_factory=list)
    billed: list[int] = field(default_factory=list)
    """The output tokens of each reply that was given."""
    base_url: str = ""
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    """No reply is given before it is set."""

    def model(self, name: str = NAME) -> OpenAIChat:
        return OpenAIChat(name, base_url=self.base_url, api_key="none")

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        bill = self.next_reply(body)
        await self.goes_on.wait()
        await asyncio.sleep(bill.takes_s)
        tokens = min(bill.tokens, body.get("max_tokens", bill.tokens))
        self.billed.append(tokens)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(_event({"delta": {"content": bill.text}}))
        for index, (tool, arguments) in enumerate(bill.calls):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            call = {"index": index, "id": f"call-{len(self.asked)}-{index}", "function": function}
            await response.write(_event({"delta": {"tool_calls": [call]}}))
        ended = "length" if tokens < bill.tokens else "tool_calls" if bill.calls else "stop"
        await response.write(_event({"delta": {}, "finish_reason": ended}))
        usage = {"prompt_tokens": bill.input_tokens, "completion_tokens": tokens}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")
        await response.write_eof()
        return response


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


@asynccontextmanager
async def paid_provider(next_reply: Callable[[dict[str, Any]], Bill]) -> AsyncIterator[PaidProvider]:
    """The server, on a free port, until the block is left."""
    provider = PaidProvider(next_reply)
    provider.goes_on.set()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", provider.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield provider
    finally:
        provider.goes_on.set()
        await runner.cleanup()


def one_after_another(*bills: Bill) -> Callable[[dict[str, Any]], Bill]:
    """These replies, then "done" for nothing."""
    left = list(bills)
    return lambda _: left.pop(0) if left else Bill(tokens=0, input_tokens=1)
