"""A real receiver of webhooks: it keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from standardwebhooks import Webhook

WAIT_S = 30


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        return orjson.loads(self.body)

    @property
    def type(self) -> str:
        return self.said["type"]

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        """What it says, if the library of Standard Webhooks believes it."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """Answers with `status`, `headers` and `body`, or as `behave` says."""

    port: int = 0
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    behave: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
    got: list[Request] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?key=1"

    async def wait_for(self, count: int, *types: str) -> list[Request]:
        """So many requests of these types, of any without one."""

        def found() -> list[Request]:
            return [each for each in self.got if not types or each.type in types]

        async with asyncio.timeout(WAIT_S), self.news:
            await self.news.wait_for(lambda: len(found()) >= count)
        return found()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        self.under_way += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.most_under_way = max(self.most_under_way, self.under_way)
            async with self.news:
                self.got.append(Request(headers, body))
                self.news.notify_all()
            if self.behave is not None:
                await self.behave(writer)
            else:
                said = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
                start = f"HTTP/1.1 {self.status} Whatever\r\ncontent-length: {len(self.body)}\r\n{said}\r\n"
                writer.write(start.encode() + self.body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.under_way -= 1
            writer.close()


@asynccontextmanager
async def receiving(receiver: Receiver | None = None) -> AsyncIterator[Receiver]:
    """A receiver on a free port of loopback, or again on the one that it has had."""
    receiver = receiver or Receiver()
    server = await asyncio.start_server(receiver._serve, "127.0.0.1", receiver.port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in receiver.serving:
            task.cancel()
        await asyncio.gather(*receiver.serving, return_exceptions=True)
        receiver.serving.clear()
        await server.wait_closed()
