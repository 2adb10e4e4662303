"""A TCP proxy in front of a server: cuts, delays or holds up connections. Knows bytes, nothing of Redis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES: Final = 65536

T = TypeVar("T")


class Proxy:
    """Forwards a loopback port to the server at `target_url`. A context manager; `url` is where to connect instead.

    Has a thread of its own, so that tests may use it from where they like.
    """

    def __init__(self, target_url: str) -> None:
        self._target = urlsplit(target_url)
        self._loop = asyncio.new_event_loop()
        # watched: a test hears of it by its own time limit
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._connections: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._delay_s = 0.0
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._flowing = self._do(_event())
        self.admit()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._do(self._join())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """The target's URL with the proxy's address."""
        credentials, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{credentials}{at}127.0.0.1:{self._port}"))

    @property
    def connections(self) -> int:
        """How many go through it now."""
        return len(self._connections)

    def cut(self) -> int:
        """Reset every connection, wherever its bytes are; new ones are let in. Returns how many there were."""
        return self._do(self._cut())

    def refuse(self) -> None:
        """Cut, and let nobody in until `admit`."""
        self._do(self._refuse())

    def admit(self) -> None:
        """Let connections in, at the same address as ever."""
        self._do(self._admit())

    def hold(self) -> None:
        """Let no byte pass, while connections stay open, as when a cable is pulled."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def release(self) -> None:
        """Let what was held pass."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def delay(self, seconds: float) -> None:
        """Let each piece of data take so long, in either direction."""
        self._delay_s = seconds

    # --- on the proxy's thread ----------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result()

    async def _admit(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> int:
        ends = list(self._connections)
        for pair in ends:
            for writer in pair:
                writer.transport.abort()
        return len(ends)

    async def _join(self) -> None:
        self._flowing.set()
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(2):  # a transport closes its socket in the loop's next round
            await asyncio.sleep(0)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connecting = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks.add(connecting)
        connecting.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        pair = (writer, far_writer)
        self._connections.add(pair)
        pumps = [
            self._loop.create_task(self._pump(reader, far_writer)),  # watched: `_ended` hears of it
            self._loop.create_task(self._pump(far_reader, writer)),  # watched: as above
        ]
        for pump in pumps:
            self._tasks.add(pump)
            pump.add_done_callback(self._ended(pair))

    def _ended(self, pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> Callable[[asyncio.Task[None]], None]:
        def ended(pump: asyncio.Task[None]) -> None:
            # One direction is over, so is the other: a half-closed connection is of no use to a request and its reply.
            self._tasks.discard(pump)
            self._connections.discard(pair)
            for writer in pair:
                writer.close()

        return ended

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()


async def _event() -> asyncio.Event:
    flowing = asyncio.Event()
    flowing.set()
    return flowing
