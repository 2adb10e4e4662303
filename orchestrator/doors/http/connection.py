"""One client's connection: its request's head must come within a time and a size, and answers must be taken.

The parser is httptools' (llhttp, which Node.js has), as h11 is written in Python. What h11 bounds or refuses, and
httptools does not, is bounded or refused here.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, Final

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from toolfleet.orchestrator.doors.http.joined_writes import JoinedWrites

HEADER_TIMEOUT_S: Final = 10.0

SEND_TIMEOUT_S: Final = 20.0
"""How long a client may take nothing of its answer."""

LOOK_EVERY_S: Final = 5.0

MAX_HEAD_BYTES: Final = 64 * 1024

MAX_PIPELINED: Final = 100
"""Requests that one client may send before the first of them is answered."""

LINGER_S: Final = 1.0
"""How long what a refused client still sends is taken and dropped: closed at once, it would not see why."""


class _Refused(Exception):
    """What comes in is no request that is served here."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Connection(HttpToolsProtocol):
    """A connection that is closed when its client lets it wait, or sends what is no request."""

    header_timeout_s: ClassVar[float]
    send_timeout_s: ClassVar[float]

    _is_in_head = False
    _offers_upgrade = False
    _head_bytes = 0
    _unheard_bytes = 0
    """What came since the parser has last told of anything."""
    _hosts = 0
    _is_refused = False
    _refusal: _Refused | None = None

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _unsent_since_s = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the head of a request."""
        joined = JoinedWrites(transport, self.loop, ends_within_s=self.send_timeout_s)
        super().connection_made(joined)  # type: ignore[arg-type]  # it has what is used
        self._unanswered: list[RequestResponseCycle] = []
        """The requests that are not answered to their end, in order: the first is being answered."""
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and see whether a head is still owed."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._unheard_bytes += len(data)  # the parser keeps it, as part of a head, or skips it, unless it tells of it
        try:
            self._parse(data)
            self._must_fit()
        except (_Refused, httptools.HttpParserError):
            self._refuse()
        else:
            self._wait_for_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more, and let every request hear of it that is not answered."""
        self._stop_head()
        self._stop_send()
        self.pipeline.clear()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
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

    # --- what the parser tells ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._is_in_head = True
        self._head_bytes = self._hosts = 0
        self._hear()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address. Raises _Refused for a head that is too large."""
        self._hear(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes behind the body says nothing here. Raises _Refused for a head too large."""
        self._hear(len(name) + len(value) + len(b": \r\n"))
        if self._is_in_head:
            super().on_header(name, value.rstrip(b" \t"))
            name, value = self.headers[-1]
            if name == b"host":
                self._hosts += 1
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise self._refused(HTTPStatus.NOT_IMPLEMENTED, "a body comes as it is, or in chunks")
            elif name == b"transfer-encoding" and self.parser.get_http_version() == "1.0":
                raise self._refused(HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no chunks")

    def on_headers_complete(self) -> None:
        """Let the application see the request. Raises _Refused for one that no client may make."""
        self._hear()
        self._is_in_head = False
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            raise self._refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 and HTTP/1.0 are spoken here")
        # Of two, some go by the first and others by the last (RFC 9112, 3.2).
        if self._hosts > 1 or (not self._hosts and version == "1.1"):
            raise self._refused(HTTPStatus.BAD_REQUEST, "a request names one host")
        if self.parser.get_method() == b"CONNECT":
            raise self._refused(HTTPStatus.METHOD_NOT_ALLOWED, "this is no proxy")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._refused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests at once")
        self._offers_upgrade = self.parser.should_upgrade()
        if self._offers_upgrade:
            return  # it is read anew
        super().on_headers_complete()
        self._unanswered.append(self.cycle)
        if version == "1.0":
            self.cycle.send = _Unchunked(self.cycle).send  # type: ignore[method-assign]  # it has not begun yet

    def on_chunk_header(self) -> None:
        """Take note of the size of a chunk."""
        self._hear()

    def on_chunk_complete(self) -> None:
        """Take note of the end of a chunk."""
        self._hear()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._head_bytes = 0
        self._hear()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the request as whole."""
        self._hear()
        if not self._offers_upgrade:
            super().on_message_complete()
            self.cycle.more_body = False  # also where it was answered before

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
        super().on_response_complete()
        if self._is_in_head and not self._is_refused:
            self._expect_head()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # Java's client offers HTTP/2 with its first request. The parser takes that for the end of HTTP/1.1, and
                # the body for what comes then. Here nobody takes it up (RFC 9110, 7.8: it may be ignored).
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        first = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = (b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        return b"".join((first, *headers, b"\r\n"))

    def _hear(self, head_bytes: int = 0) -> None:
        """Count what the parser has told of a head: that is all that it has of it then. Raises _Refused."""
        self._unheard_bytes = 0
        self._head_bytes += head_bytes
        self._must_fit()

    def _must_fit(self) -> None:
        if self._head_bytes + self._unheard_bytes > MAX_HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise self._refused(status, f"a head has at most {MAX_HEAD_BYTES} bytes")

    def _refused(self, status: HTTPStatus, detail: str) -> _Refused:
        """Return what is to be raised. Kept: the parser raises an error of its own in its place."""
        self._refusal = _Refused(status, detail)
        return self._refusal

    # --- an end ---------------------------------------------------------------------------------------------

    @property
    def _is_between_requests(self) -> bool:
        """Whether the newest request is whole, or there was none."""
        newest: RequestResponseCycle | None = self.cycle
        return newest is None or not newest.more_body

    def _refuse(self) -> None:
        """Read nothing more. Whoever has asked before is answered first; then the connection ends."""
        self._is_refused = True
        self._stop_head()
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()  # it will never be whole, and is not begun
            self._unanswered.pop()
        if not self._unanswered:
            if self._is_between_requests:
                self._answer()
            else:  # what breaks off is the body of one that is answered
                self.transport.close()
            return
        last = self._unanswered[-1]
        if not last.more_body:
            last.keep_alive = False
        elif last.response_started:
            self.transport.close()
        else:
            last.disconnected = True  # nobody hears what the application would say
            last.message_event.set()
            self._answer()

    def _answer(self) -> None:
        refused = self._refusal or _Refused(HTTPStatus.BAD_REQUEST, "what came is no HTTP/1.1")
        kind = refused.status.phrase.lower().replace(" ", "-")
        told = {
            "type": f"urn:toolfleet:problem:{kind}",
            "title": refused.status.phrase,
            "status": refused.status,
            "detail": str(refused),
        }
        body = orjson.dumps(told)
        head = b"content-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[refused.status] + head + body)
        self.transport.write_eof()
        self.flow.resume_reading()  # what is left unread would break the answer off
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)

    # --- the request's head ---------------------------------------------------------------------------------

    def _wait_for_more(self) -> None:
        """See what is owed after a piece has come."""
        if self.flow.read_paused or (self._unanswered and not self._is_in_head):
            self._stop_head()  # we are the ones who are late
        elif self._is_in_head or not self._is_between_requests or self.cycle is None:
            self._expect_head()
        else:
            self._stop_head()
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._unanswered:
            self._refuse()
        else:
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


class _Unchunked:
    """Sends an answer to a client of HTTP/1.0, who knows no chunks: what has no length ends with its connection."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._has_length = True

    async def send(self, message: Any) -> None:
        """As `RequestResponseCycle.send`, which would chunk it."""
        cycle, scope = self._cycle, self._cycle.scope
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._has_length = b"content-length" in names
            cycle.scope = scope if self._has_length else {**scope, "method": "HEAD"}
            await self._send(message)
            cycle.scope = scope
            return
        if not self._has_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)


def connections_of(
    header_timeout_s: float = HEADER_TIMEOUT_S, send_timeout_s: float = SEND_TIMEOUT_S
) -> type[Connection]:
    """Return the class of connections with these bounds, as uvicorn makes them."""
    bounds = {"header_timeout_s": header_timeout_s, "send_timeout_s": send_timeout_s}
    return type("BoundedConnection", (Connection,), bounds)
