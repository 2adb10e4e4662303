"""One client's connection: its request's head must come within a time, and answers must be taken.

uvicorn bounds how large a head may be and how long a connection rests between requests, not these two.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOK_EVERY_S: Final = 5.0


class Connection(H11Protocol):
    """A connection that is closed when its client lets it wait."""

    header_timeout_s: ClassVar[float]
    send_timeout_s: ClassVar[float]

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _unsent_since_s = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and see whether a head is still owed."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_head()
        else:
            self._stop_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_head()
        self._stop_send()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See from here on whether the client takes anything."""
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._unsent_since_s = self.loop.time()
        self._look_later()

    def resume_writing(self) -> None:
        """Go on: the client has taken what it was sent."""
        self._stop_send()
        super().resume_writing()

    # --- the request's head ---------------------------------------------------------------------------------

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()

    def _stop_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # --- what is sent ---------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._stop_send()
        wait_s = min(LOOK_EVERY_S, self.send_timeout_s)
        self._send_timer = self.loop.call_later(wait_s, self._look_whether_it_is_taken)

    def _look_whether_it_is_taken(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent, self._unsent_since_s = unsent, self.loop.time()
        elif self.loop.time() - self._unsent_since_s >= self.send_timeout_s:
            self.transport.abort()
            return
        self._look_later()

    def _stop_send(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None


def connections_of(header_timeout_s: float, send_timeout_s: float) -> type[Connection]:
    """Return the class of connections with these bounds, as uvicorn makes them."""
    bounds = {"header_timeout_s": header_timeout_s, "send_timeout_s": send_timeout_s}
    return type("BoundedConnection", (Connection,), bounds)
