"""uvicorn as this project runs it: a port of its own, streams that end when it stops, errors in one line."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, runtime_checkable

import uvicorn
from starlette.types import ASGIApp

from toolfleet.errors import PortInUse
from toolfleet.last_words import say_last
from toolfleet.orchestrator.doors.http.connection import HEADER_TIMEOUT_S, SEND_TIMEOUT_S, connections_of

STOPPED_BY: Final = (signal.SIGINT, signal.SIGTERM)

GRACE_S: Final = 5
"""How long requests may end once the server is told to stop."""

SOCKET_BYTES: Final = 256 * 1024
"""What the kernel keeps of one connection in each direction; it takes twice as much."""

BACKLOG: Final = 4096
"""A thousand clients may come at once."""

KEEP_ALIVE_S: Final = 75
"""Longer than most proxies keep a connection: the server must not be the one that closes it under a request."""


@runtime_checkable
class ClosesStreams(Protocol):
    """What has streams that go on until they are closed: the door of one application, or that of several shards."""

    def close_streams(self) -> None:
        """End every stream."""


class ApiServer(uvicorn.Server):
    """Ends its event streams before it waits for its connections."""

    says_that_it_stops = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server. Its listeners come back with Last-Event-ID, here or elsewhere."""
        app = self.config.app
        door = getattr(getattr(app, "state", None), "door", app)
        if isinstance(door, ClosesStreams):
            door.close_streams()
        if self.says_that_it_stops:
            say_last(f"Stopping: requests have {GRACE_S} s to end. Ctrl-C again stops at once.")
        await super().shutdown(sockets)
        if self.force_exit:
            # What is cut off now would say so with a traceback of its own.
            logging.getLogger("uvicorn.error").disabled = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order at the first signal, at once at the second Ctrl-C.

        uvicorn raises the signal again afterwards: a server that has stopped as it was told would end as if killed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in STOPPED_BY}
        for number in STOPPED_BY:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 takes a free one. Raises PortInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, as asyncio lets only such a connection send at once: head and body of an answer were 40 ms apart.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections inherit these. Left to itself the kernel would keep megabytes for a client that does not read.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise PortInUse(f"the API cannot listen on {host}:{port} ({error.strerror}); choose another --port") from None
    bound.set_inheritable(True)
    return bound


def server_for(
    app: ASGIApp,
    *,
    log_level: str = "warning",
    header_timeout_s: float = HEADER_TIMEOUT_S,
    send_timeout_s: float = SEND_TIMEOUT_S,
) -> ApiServer:
    """Make a server that is not started yet; `serve(sockets=[…])` runs it until it is told to stop."""
    return ApiServer(
        uvicorn.Config(
            app,
            http=connections_of(header_timeout_s, send_timeout_s),
            log_level=log_level,
            access_log=False,
            backlog=BACKLOG,
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ws="none",
        )
    )
