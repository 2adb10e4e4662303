"""One HTTP exchange for a tool: bounded in time and size while it streams, redirects followed within the rules.

On httpx's transport rather than its client, which logs every URL with what is in it. Knows no tool; what a connection
may be made to is the gate's matter.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from toolfleet import ToolError
from toolfleet.media import essence_of
from toolfleet.unpacking import CannotUnpack, Unpacker
from toolfleet.workers.packs.net.charsets import charset_of
from toolfleet.workers.packs.net.gate import Gate

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

KEPT_ACROSS_ORIGINS: Final = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that follow a redirect to another server: a stranger is told no credentials, however they are called."""

SET_HERE: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"})
"""Headers that are no caller's to set: they frame the message, or say whom it is for."""

PIECE_BYTES: Final = 65_536

USER_AGENT: Final = "toolfleet"


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one exchange may take. Redirects count into the time."""

    timeout_s: float
    max_bytes: int
    max_redirects: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask for."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class _Hop:
    """A request as it goes to one server."""

    method: str
    url: httpx.URL
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came back. `body` is decompressed and at most `max_bytes` long; `cut` if there was more."""

    status: int
    url: str
    headers: httpx.Headers
    body: bytes
    cut: bool

    @property
    def charset(self) -> str:
        """The codec of the charset that the server names, or UTF-8."""
        return charset_of(self.media_type_line)

    @property
    def media_type_line(self) -> str:
        """The Content-Type as it was sent; empty if there was none."""
        return str(self.headers.get("content-type", ""))

    @property
    def media_type(self) -> str:
        """Of the Content-Type, what comes before the parameters."""
        return essence_of(self.media_type_line)


async def fetch(request: Request, limits: FetchLimits, gate: Gate | None) -> Fetched:
    """Send a request and read the answer. Without a gate any address may be reached: for URLs of the operator's own.

    Raises ToolError, whose text names the host and never the rest of the URL, nor a header.
    """
    url = _url(request.url)
    headers = httpx.Headers({"user-agent": USER_AGENT} | _sendable(request.headers))
    try:
        async with asyncio.timeout(limits.timeout_s):
            for _ in range(limits.max_redirects + 1):
                fetched, onward = await _exchange(
                    _Hop(request.method, url, headers, request.body), limits.max_bytes, gate
                )
                if onward is None or limits.max_redirects == 0:
                    return fetched
                if _origin(onward) != _origin(url):
                    headers = httpx.Headers([item for item in headers.items() if item[0] in KEPT_ACROSS_ORIGINS])
                url = onward
    except TimeoutError:
        raise ToolError(f"{url.host} did not answer in full within {limits.timeout_s:g} s") from None
    except (httpx.HTTPError, OSError) as error:
        raise ToolError(f"{url.host} cannot be reached: {type(error).__name__}") from None
    raise ToolError(f"{url.host} redirected more than {limits.max_redirects} times")


async def _exchange(hop: _Hop, max_bytes: int, gate: Gate | None) -> tuple[Fetched, httpx.URL | None]:
    """One request and its answer, and where the answer redirects to."""
    # No connection is kept: it was made to an address, and the next request may mean another host there.
    transport = httpx.AsyncHTTPTransport(
        verify=_tls(), trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
    )
    async with transport:
        response = await _send(transport, hop, gate)
        try:
            onward = _onward(hop.url, response)
            content, cut = (b"", False) if hop.method == "HEAD" else await _read(response, max_bytes)
        finally:
            await response.aclose()
    return Fetched(response.status_code, str(hop.url), response.headers, content, cut), onward


async def _send(transport: httpx.AsyncHTTPTransport, hop: _Hop, gate: Gate | None) -> httpx.Response:
    url = hop.url
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = [url.host] if gate is None else await gate.addresses(url.host, port)
    for position, address in enumerate(addresses, start=1):
        request = httpx.Request(
            hop.method,
            url.copy_with(host=address),
            headers=[*hop.headers.multi_items(), ("accept-encoding", "gzip, deflate"), ("host", _authority(url))],
            content=hop.body or None,
            # The name that the certificate must be for.
            extensions={"sni_hostname": url.host, "timeout": {"connect": None, "read": None, "write": None}},
        )
        try:
            return await transport.handle_async_request(request)
        except httpx.ConnectError:
            if position == len(addresses):
                raise
    raise ToolError(f"the host {url.host} cannot be found")


async def _read(response: httpx.Response, max_bytes: int) -> tuple[bytes, bool]:
    content = bytearray()
    async for piece in _unpacked(response):
        content += piece
        if len(content) > max_bytes:
            return bytes(content[:max_bytes]), True
    return bytes(content), False


async def _unpacked(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body, unpacked in pieces of bounded size."""
    packed = b""
    try:
        unpacker = Unpacker(response.headers.get("content-encoding", ""))
        async for packed in response.aiter_raw(PIECE_BYTES):
            for piece in unpacker.unpacked(packed):
                yield piece
    except CannotUnpack as why:
        raise ToolError(f"the server {why}") from None
    if packed and not unpacker.is_whole:
        raise ToolError("the server's compressed answer ended in the middle")


def _onward(url: httpx.URL, response: httpx.Response) -> httpx.URL | None:
    location = response.headers.get("location")
    if response.status_code not in REDIRECTS or not location:
        return None
    try:
        return _url(str(url.join(location)))
    except httpx.InvalidURL:
        raise ToolError(f"{url.host} redirects to what is no URL") from None


def _url(text: str) -> httpx.URL:
    """A URL that can be fetched. Raises ToolError."""
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError, TypeError):
        raise ToolError("this is no URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError("only URLs that begin with http:// or https:// and a host can be fetched")
    if url.userinfo:
        raise ToolError("a URL must not contain a user name or password")
    return url.copy_with(fragment=None)


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    sendable = {name.strip().lower(): value for name, value in headers.items()}
    for name, value in sendable.items():
        if name in SET_HERE:
            raise ToolError(f"the header {name} cannot be set")
        if not name or any(character in name + value for character in "\r\n\0"):
            raise ToolError("a header has a line break in it, or no name")
        if not (name + value).isascii():
            raise ToolError(f"the header {name} must be ASCII")
    return sendable


def _authority(url: httpx.URL) -> str:
    return url.netloc.decode("ascii")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
