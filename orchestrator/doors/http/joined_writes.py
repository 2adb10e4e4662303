"""What a connection is given to send in one turn of the event loop goes out in one write."""

from __future__ import annotations

import asyncio
from typing import Any, Final

SENT_AT_ONCE_BYTES: Final = 64 * 1024
"""So much is not held back for the rest of its turn: beyond it the transport says whether the client takes more."""


class JoinedWrites:
    """A transport as uvicorn's protocols use it.

    They write an answer's head, its body and each event of a stream by itself, and a write costs more than all else
    that a small one does.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, ends_within_s: float) -> None:
        """`ends_within_s`: how long a client may take for what is unsent when it is closed."""
        self._ends_within_s = ends_within_s
        self._has_ended = False
        self._transport = transport
        self._loop = loop
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        """Send it with what else is written in this turn of the loop; nothing after the end."""
        if self._has_ended:
            return
        if len(data) >= SENT_AT_ONCE_BYTES:  # as it is, without a copy
            self._send()
            self._transport.write(data)
            return
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= SENT_AT_ONCE_BYTES:
            self._send()

    def write_eof(self) -> None:
        """Let the client see the end once all of it is sent; what it sends is still taken."""
        self._send()
        self._has_ended = True
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Close it once all of it is sent, or its client has taken too long for that."""
        self._send()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(self._ends_within_s, self._transport.abort)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection under this name, as asyncio's transports do."""
        return self._transport.get_extra_info(name, default)

    def _send(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and not self._transport.is_closing():
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
