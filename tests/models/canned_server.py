"""A real HTTP server that answers as a provider has, with what a test has queued."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

PATHS = ("/v1/messages", "/chat/completions")


class CannedServer:
    """Gives the queued answers in turn: the events of a stream, a whole document, or a status with a document.

    A stream that a test has cut ends early, as it would be cut off on the way.
    """

    def __init__(self) -> None:
        self.answers: deque[Any] = deque()
        self.requests: list[Any] = []
        """What was asked."""
        self.headers: list[Mapping[str, str]] = []
        self.client_ports: list[int] = []
        self.base_url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.requests.append(await request.json())
        self.headers.append(request.headers.copy())
        assert request.transport
        self.client_ports.append(request.transport.get_extra_info("peername")[1])
        match self.answers.popleft():
            case dict(whole):
                return web.json_response(whole)
            case (int(status), document):
                return web.json_response(document, status=status)
            case events:
                return await _streamed(request, events)


async def _streamed(request: web.Request, events: list[Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        named = f"event: {event['type']}\n" if "type" in event else ""
        await response.write(f"{named}data: {json.dumps(event)}\n\n".encode())
    await asyncio.sleep(0.02)  # over a network, the body's end comes a little after its last event
    return response


@asynccontextmanager
async def canned_server() -> AsyncIterator[CannedServer]:
    """Open one on a free port of this machine."""
    server = CannedServer()
    app = web.Application(client_max_size=2**26)
    for path in PATHS:
        app.router.add_post(path, server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
