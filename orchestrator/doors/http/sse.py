"""Server-sent events: a response that goes on for as long as there is news and somebody reads.

Owns pings, the client's leaving and clients that do not read. Written here rather than taken from sse-starlette, which
patches uvicorn for the whole process and keeps four tasks for each listener; a thousand idle ones are to be cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.tail import Behind

log = FactLog("toolfleet.http")

PING: Final = b": ping\n\n"
PIECE_BYTES: Final = 64 * 1024

CLOCK_S: Final = 0.001
"""So much finer than the event loop's clock (uvloop's) a time may be: a timer of 0.15 s may see 0.149 s pass."""

MEDIA_TYPE: Final = "text/event-stream"


class EventStream(Response):
    """Sends what a generator yields, bytes of whole events, and closes it when the client leaves."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        door: Door,
        events: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str] | None = None,
        farewell: Callable[[], bytes] = bytes,
    ) -> None:
        """`farewell` makes the last event where this server stops before the end."""
        self._farewell = farewell
        self._door = door
        self._events = events
        self._turn = asyncio.Lock()
        """Who has it sends one event to its end."""
        self._taken_s: float | None = None
        """When the client took the last piece of what is being sent; None while nothing is."""
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the generator ends, the client leaves, or the server stops."""
        async with aclosing(self._events):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pump = asyncio.create_task(self._pump(send))  # watched: its error is told below
            left = asyncio.ensure_future(_until_left(receive))  # watched: awaited below
            self._door.streams.add(pump)
            try:
                await self._watch(send, pump, left)
            except TimeoutError as late:
                self._tell(late, scope)
                return
            finally:
                self._door.streams.discard(pump)
                for task in (pump, left):
                    task.cancel()
                await asyncio.gather(pump, left, return_exceptions=True)
            if not pump.cancelled() and (error := pump.exception()) is not None:
                self._tell(error, scope)
            elif not left.done() or left.cancelled():
                farewell = self._farewell() if pump.cancelled() and self._door.is_closing else b""
                await send({"type": "http.response.body", "body": farewell})

    async def _watch(self, send: Send, pump: asyncio.Task[None], left: asyncio.Future[None]) -> None:
        """Return when nothing more is sent, with pings meanwhile. Raises TimeoutError where the client takes nothing.

        One timer for all events: one for each would cost as much as to send it.
        """
        options, loop = self._door.options, asyncio.get_running_loop()
        said_s = loop.time()
        while not pump.done() and not left.done():
            due_s = max(0.0, said_s + options.ping_s - loop.time()) or options.ping_s
            looks_again_s = min(due_s, options.send_timeout_s)
            await asyncio.wait({pump, left}, timeout=looks_again_s, return_when=asyncio.FIRST_COMPLETED)
            now_s = loop.time() + CLOCK_S
            if self._taken_s is not None and now_s - self._taken_s >= options.send_timeout_s:
                raise TimeoutError
            if not self._turn.locked() and now_s - said_s >= options.ping_s:
                said_s = loop.time()
                async with asyncio.timeout(options.send_timeout_s):
                    await self._send(send, PING)

    async def _pump(self, send: Send) -> None:
        async for event in self._events:
            await self._send(send, event)

    async def _send(self, send: Send, body: bytes) -> None:
        time = asyncio.get_running_loop().time
        async with self._turn:
            # In pieces: of a large event only as much as the client takes is copied to its connection.
            for start in range(0, len(body), PIECE_BYTES):
                self._taken_s = time()
                piece = body[start : start + PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._taken_s = None

    def _tell(self, error: BaseException, scope: Scope) -> None:
        """Log an error. A stream that has begun has no status left for it: it breaks off, and the client comes back."""
        if not isinstance(error, Behind | TimeoutError | ToolfleetError):
            raise error
        log.info("listener_dropped", path=scope["path"], reason=f"{type(error).__name__}: {error}")


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
