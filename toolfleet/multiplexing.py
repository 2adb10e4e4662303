"""One connection to Redis for the commands of any number of tasks, pipelined: sent by the tick, answered in order.

redis-py makes the connection (names, TLS, passwords, Sentinel) and greets the server; from there on the socket is read
and written here, because a command on a redis-py connection of its own costs several times what the server needs for
it. Only for commands that neither wait on the server nor change the connection (`may_share` tells).
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis
import redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse, ReadOnlyError, RedisError

Command = Sequence[Any]

SILENT_S: Final = 30.0
"""How long a server may say nothing while a reply is due, and how long it may take to make a connection. Then it is
given up for another one: the network between may have forgotten it, or another server have taken its place."""

SENT_AT_ONCE_BYTES: Final = 64 * 1024
"""So much is not held back for the rest of its tick: beyond it the transport says whether the server takes more."""

QUIET_AFTER: Final = 8
"""So often in turn a command is alone, in its tick and with the server; then the next one is not held back."""

_LOOKS: Final = 3
"""Looks within that time. Only they are counted, so a process that was stopped itself takes nobody for gone."""

_NOT_YET: Final = object()
"""What the parser says before a reply is whole."""

_OF_ONE_CONNECTION: Final = frozenset(
    {
        *("AUTH", "CLIENT", "DISCARD", "EXEC", "HELLO", "MONITOR", "MULTI", "PSUBSCRIBE", "PSYNC", "PUNSUBSCRIBE"),
        *("QUIT", "RESET", "SELECT", "SHUTDOWN", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "SYNC", "UNSUBSCRIBE"),
        *("UNWATCH", "WATCH"),
        *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "WAIT", "WAITAOF"),
    }
)
"""Commands that change the connection they are sent on, or hold up what is sent behind them."""

_MAY_BLOCK: Final = frozenset({"XREAD", "XREADGROUP"})


def may_share(command: Command) -> bool:
    """Return whether the command may stand among others' on one connection."""
    name = str(command[0]).partition(" ")[0].upper()
    if name in _MAY_BLOCK:
        return not any(part in {"BLOCK", b"BLOCK"} for part in command)
    return name not in _OF_ONE_CONNECTION


def packed(command: Command) -> bytes:
    """Return a command as it goes to the server. Raises redis.DataError for what has no such form."""
    name = command[0]
    if isinstance(name, str) and " " in name:
        command = (*name.split(), *command[1:])
    try:
        return hiredis.pack_command(tuple(command))  # type: ignore[no-any-return]  # hiredis says Any
    except TypeError as error:
        raise redis.DataError(str(error)) from error


class MultiplexedConnection:
    """A connection that is made when it is first needed, and anew when it was lost. For one event loop."""

    def __init__(self, make: Callable[[], AbstractConnection], *, silent_s: float = SILENT_S) -> None:
        """`make` returns a redis-py connection that is not connected yet."""
        self._make = make
        self._silent_s = silent_s
        self._replies: ReplyStream | None = None
        self._connecting: asyncio.Task[ReplyStream] | None = None
        self._closed = False

    async def request(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together, and return the reply to each: an error that the server answers is a reply, too.

        Raises redis.ConnectionError when the connection cannot be made or is lost before the last reply, and
        redis.TimeoutError when the server is silent for `silent_s`: then all, some or none of the commands were
        carried out. One that is cancelled is carried out all the same.
        """
        data = packed(commands[0]) if len(commands) == 1 else b"".join(map(packed, commands))
        replies = self._replies
        if replies is None or not replies.is_open:
            replies = await self._connected()
        return await replies.request(data, len(commands))

    def drop(self) -> None:
        """Let go of the connection, whatever it was asked; the next command makes another."""
        if self._replies is not None:
            self._replies.abort()

    async def aclose(self) -> None:
        """Close the connection. Whoever waits for a reply gets a redis.ConnectionError."""
        self._closed = True
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
        self.drop()  # first of all: whoever closes may be cancelled while that takes its time
        if connecting is not None:
            await asyncio.gather(connecting, return_exceptions=True)
        if self._replies is not None:
            await self._replies.aclose()

    def __del__(self) -> None:
        """Close the socket of one that nobody has closed, which the event loop would keep open."""
        if self._replies is None or not self._replies.is_open:
            return
        if self._replies.has_lost_its_loop:
            self._replies.close_socket()
        else:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._replies.abort()

    async def _connected(self) -> ReplyStream:
        """Connect once for all who ask meanwhile."""
        if self._closed:
            raise redis.ConnectionError("the connection is closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())  # watched: whoever asked gets what it raises
            self._connecting.add_done_callback(self._end_connecting)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self._closed:  # it was `aclose`, and nobody has cancelled who asks
                raise redis.ConnectionError("the connection is closed") from None
            raise

    async def _connect(self) -> ReplyStream:
        self._replies = await connected(self._make(), silent_s=self._silent_s)
        return self._replies

    def _end_connecting(self, task: asyncio.Task[ReplyStream]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # it is told, also where everybody has left


async def connected(connection: AbstractConnection, *, silent_s: float) -> ReplyStream:
    """Connect, and take the connection over. Raises redis.ConnectionError, redis.TimeoutError or OSError."""
    try:
        async with asyncio.timeout(silent_s):
            await connection.connect()
        return ReplyStream(connection, silent_s=silent_s)
    except BaseException as error:
        await connection.disconnect(nowait=True)
        if isinstance(error, TimeoutError):
            raise redis.TimeoutError(f"it took longer than {silent_s:g} s to connect") from error
        raise


class ReplyStream(asyncio.Protocol):
    """The socket of a redis-py connection that is connected and greeted, and who waits for what comes in on it."""

    def __init__(self, connection: AbstractConnection, *, silent_s: float = SILENT_S) -> None:
        """Take over the socket. The connection must have no reply outstanding.

        Raises redis.ConnectionError when the server has closed it by now, and leaves it to its owner.
        """
        reader, writer = connection._reader, connection._writer  # redis-py has no public way
        # One that is lost already tells nobody again.
        if reader is None or writer is None or reader.at_eof() or writer.transport.is_closing():
            raise redis.ConnectionError("Connection closed by server.")
        # It closes its socket when it is collected.
        self._connection = connection
        self._parser = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_NOT_YET,  # as above
        )
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._sent_singly = QUIET_AFTER
        """How often in turn a command that was held back for its tick was alone."""
        self._expected: deque[tuple[asyncio.Future[list[Any]], int]] = deque()
        self._got: list[Any] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._is_stale = False
        self._silent_s = silent_s
        self._pieces = 0
        """How many pieces of replies have come in."""
        self._looking: asyncio.TimerHandle | None = None
        self._transport: asyncio.WriteTransport = writer.transport
        self._transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        """Whether further commands may be sent."""
        return not (self._is_stale or self._transport.is_closing())

    async def request(self, data: bytes, count: int) -> list[Any]:
        """Send packed commands; return as many replies. Raises redis.ConnectionError when the connection is lost."""
        if not self._writable.is_set():
            await self._writable.wait()
        if self._transport.is_closing():
            raise redis.ConnectionError("Connection closed by server.")
        replies: asyncio.Future[list[Any]] = self._loop.create_future()
        is_alone = not self._expected and self._sent_singly >= QUIET_AFTER
        self._expected.append((replies, count))
        if is_alone:
            self._transport.write(data)  # the rest of the tick will hardly bring what it could go with
        else:
            self._send_soon(data)
        if self._looking is None:
            self._look_later(self._progress, looks=1)
        return await replies

    def _send_soon(self, data: bytes) -> None:
        """Send it with all that is asked for in this tick: a write costs more than all else of a small command does.

        Event loops write at once what they are given, uvloop too since 0.23.
        """
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= SENT_AT_ONCE_BYTES:
            self._send()

    def _send(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if not unsent:
            return  # it was too much to be held back
        self._sent_singly = self._sent_singly + 1 if len(unsent) == len(self._expected) == 1 else 0
        if not self._transport.is_closing():  # else whoever waits hears that it was not sent
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    @property
    def has_lost_its_loop(self) -> bool:
        """Whether the event loop was closed before the connection was: nobody can close it in order any more."""
        return self._loop.is_closed()

    def close_socket(self) -> None:
        """Close the socket of a loop that is closed, which would not do it."""
        with contextlib.suppress(RuntimeError):  # the loop can call nobody back
            self._transport.abort()
        connection = self._connection
        connection._reader = connection._writer = None  # else it would complain, too
        sock = getattr(self._transport, "_sock", None)
        if sock is not None:
            sock.close()
            self._transport._sock = None  # type: ignore[attr-defined]  # asyncio's own, which would complain

    def abort(self) -> None:
        """Close the socket soon, without sending what waits to be sent."""
        if not self.has_lost_its_loop:  # else it is closed when it is collected
            self._transport.abort()

    async def aclose(self) -> None:
        """Close the socket, and return when it is closed."""
        self._transport.abort()
        await self._lost

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Give every reply that is whole now to whoever waits for it."""
        self._pieces += 1
        parser, expected, got = self._parser, self._expected, self._got
        parser.feed(data)
        try:
            while (reply := parser.gets()) is not _NOT_YET:
                if isinstance(reply, hiredis.PushNotification):
                    continue
                if isinstance(reply, ReadOnlyError):
                    # A primary no more: the next command asks anew where the primary is.
                    self._is_stale = True
                got.append(reply)
                waiting, count = expected[0]
                if len(got) == count:
                    expected.popleft()
                    if not waiting.done():
                        waiting.set_result(got)
                    self._got = got = []
        except (RedisError, IndexError) as error:  # no server of Redis's says so much, or so
            self._fail_all(error if isinstance(error, RedisError) else InvalidResponse("a reply that nobody asked for"))
            self._transport.abort()
        if self._is_stale and not expected:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody that the connection is gone."""
        self._fail_all(redis.ConnectionError(f"Connection lost: {exc}" if exc else "Connection closed by server."))
        self._writable.set()
        if self._looking is not None:
            self._looking.cancel()
        connection = self._connection
        connection._reader = connection._writer = None  # else it would complain that it was not closed
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        """Let further commands wait: the server does not take what it is sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let commands be sent again."""
        self._writable.set()

    # --- a server that says nothing -------------------------------------------------------------------------------

    @property
    def _progress(self) -> tuple[int, int]:
        """What changes while the server takes commands or answers."""
        return self._pieces, self._transport.get_write_buffer_size()

    def _look_later(self, seen: tuple[int, int], *, looks: int) -> None:
        # One timer for all commands, and none while no reply is due.
        self._looking = self._loop.call_later(self._silent_s / _LOOKS, self._look, seen, looks)

    def _look(self, seen: tuple[int, int], looks: int) -> None:
        self._looking = None
        if not self._expected:
            return
        now = self._progress
        if now != seen:
            self._look_later(now, looks=1)
        elif looks < _LOOKS:
            self._look_later(now, looks=looks + 1)
        else:
            self._fail_all(redis.TimeoutError(f"no reply within {self._silent_s:g} s"))
            self._transport.abort()

    def _fail_all(self, error: Exception) -> None:
        while self._expected:
            waiting, _ = self._expected.popleft()
            if not waiting.done():
                waiting.set_exception(error)
