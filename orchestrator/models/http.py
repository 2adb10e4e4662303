"""One provider's HTTP endpoint: posts a request, hands out the answer, translates every fault once.

Knows status codes, time-outs and sizes; it must not know any wire format, nor how often something is asked. On aiohttp,
which carries several times as many replies in a second as httpx's own connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import orjson
from pydantic import SecretStr

from toolfleet.errors import InvalidSettings
from toolfleet.media import essence_of
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid, TryAgain
from toolfleet.orchestrator.models.faults import ServerReply, fault_of
from toolfleet.proxies import proxy_to
from toolfleet.strict_json import encodable
from toolfleet.unpacking import CannotUnpack, Unpacker

OK = 200
CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError)
MAX_ERROR_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
"""A long conversation is sent in pieces of this size: in one, it would hold up everybody else's."""


@exact()
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How long, how often and how much: one value for all requests of a model."""

    timeout_s: float = 600.0
    """One reply from request to last byte; reasoning models take minutes."""
    silence_s: float = 120.0
    """Longest pause between two pieces of a reply; providers send pings well within it."""
    connect_s: float = 10.0
    """A server that is there accepts within a moment; a missing one should not hold up the retry."""
    attempts: int = 6
    """How often one reply is asked for before it fails; 1 for never again."""
    first_wait_s: float = 0.5
    """Wait before the second attempt; doubles from there. Half of each wait is left to chance."""
    max_wait_s: float = 60.0
    """Longest wait between two attempts. A `Retry-After` beyond it fails at once: a fallback may be nearer."""
    retry_for_s: float = 300.0
    """No further attempt begins later than this after the first."""
    opens_after: int = 5
    """After so many failed replies in a row, retries included, further ones fail at once; 0 for never."""
    open_s: float = 30.0
    """How long they do. Then one reply is let through, and its success lets all others follow."""
    max_reply_bytes: int = 32 * 1024 * 1024
    """A reply larger than this is not a model's; it is refused before it fills the memory."""
    max_connections: int = 1024
    """Replies in flight at once; more wait for a free connection within `timeout_s`."""

    def __post_init__(self) -> None:
        """Refuse values that contradict each other."""
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1: a model that is never asked cannot answer")
        if self.opens_after < 0 or self.open_s <= 0:
            raise ValueError("opens_after must not be negative, and open_s must be longer than nothing")
        if self.first_wait_s > self.max_wait_s:
            raise ValueError("first_wait_s must not exceed max_wait_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The key, how it is sent, and which variables a user sets to change key and model."""

    key: SecretStr | None
    header: str
    prefix: str = ""
    key_variable: str
    model_variable: str

    def headers(self) -> dict[str, str]:
        """Return the header that carries the key; nothing without one (local servers need none)."""
        return {} if self.key is None else {self.header: self.prefix + self.key.get_secret_value()}

    def without_key(self, text: str) -> str:
        """`text` with the key blanked out: some servers repeat it in their complaint."""
        secret = self.key.get_secret_value() if self.key else ""
        return text.replace(secret, "***") if secret else text


def secret(key: str | None, variable: str) -> SecretStr | None:
    """Return a key as it may stand in a header, without the blanks that copying adds; None if there is none.

    Raises InvalidSettings, without showing the key, for one that no header can carry.
    """
    stripped = (key or "").strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise InvalidSettings(f"the key holds characters that no key has: copy {variable} again")
    return SecretStr(stripped) if stripped else None


class Endpoint:
    """A provider's base URL with its connections, which open at the first request and belong to that event loop."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        options: HttpOptions,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._credentials = credentials
        self._options = options
        self._headers = {
            "content-type": "application/json",
            # A compressed stream would arrive in lumps.
            "accept-encoding": "identity",
            **{name.lower(): value for name, value in (headers or {}).items()},
            **{name.lower(): value for name, value in credentials.headers().items()},
        }
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r})"

    @cached_property
    def address(self) -> str:
        """Scheme, host and path, without user, password or query."""
        parts = urlsplit(self._base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # whatever stands for a port there

    @cached_property
    def host(self) -> str:
        """Who is asked; what a provider wants back is kept under this name and shown to nobody else."""
        return urlsplit(self._base_url).hostname or ""

    @contextlib.asynccontextmanager
    async def post(self, path: str, body: Mapping[str, Any], *, accept: str) -> AsyncIterator[Answer]:
        """An answer with status 200, its body still to be read; bounded in time and size.

        Raises TryAgain for faults that may pass (also while the body is read inside the block), ModelRefused for
        those that will not, ModelReplyInvalid for what is not an API's answer.
        """
        with self._translating():
            deadline = asyncio.get_running_loop().time() + self._options.timeout_s
            response = await self._send(path, body, accept, deadline)
            try:
                answer = Answer(response, deadline, self._options.max_reply_bytes)
                if response.status != OK:
                    raise await self._fault(response, answer)
                yield answer
            finally:
                await _hang_up(response)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, path: str, body: Mapping[str, Any], accept: str, deadline: float) -> aiohttp.ClientResponse:
        if "authorization" in self._headers and "@" in urlsplit(self._base_url).netloc:
            key = self._credentials.key_variable
            raise ModelRefused(
                f"{self.address} was given a user in base_url beside the key ({key}): remove one of them"
            )
        session = self._session = self._session or open_session(self._base_url, self._options)
        content = _encoded(body)
        headers = {**self._headers, "accept": accept, "content-length": str(len(content))}
        url, proxy = self._base_url + path, self._proxy
        async with asyncio.timeout_at(deadline):
            return await session.post(
                url, data=_in_pieces(content), headers=headers, proxy=proxy, allow_redirects=False
            )

    @cached_property
    def _proxy(self) -> str | None:
        return proxy_to(self._base_url)  # looked up once, and not in a thread for each request

    async def _fault(self, response: aiohttp.ClientResponse, answer: Answer) -> Exception:
        body = await answer.beginning(MAX_ERROR_BYTES)
        text = self._credentials.without_key(body.decode(errors="replace"))
        said = ServerReply(response.status, response.headers.get("retry-after"), text)
        return fault_of(said, self.address, self._credentials.key_variable, self._credentials.model_variable)

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """The one border between the HTTP library's exceptions and ours."""
        try:
            yield
        except aiohttp.InvalidUrlClientError as error:
            raise ModelRefused(f"{self.address} is not an http(s) URL: correct base_url") from error
        except CannotUnpack as error:
            raise ModelReplyInvalid(f"{self.address} {error}") from error
        except aiohttp.ClientError as error:  # its own time-outs are TimeoutErrors, too
            raise TryAgain(f"{self.address} cannot be reached: {_cause(error)}") from error
        except TimeoutError as error:
            raise TryAgain(f"{self.address} took longer than {self._options.timeout_s:g} s") from error


class Answer:
    """An answer's media type, and its body, unpacked; an error when that grows too large or takes too long."""

    def __init__(self, response: aiohttp.ClientResponse, deadline: float, max_bytes: int) -> None:
        self.media_type = encodable(essence_of(response.headers.get("content-type", "")))
        self._content = response.content
        self._deadline = deadline
        self._max_bytes = max_bytes
        # Unpacked here, and not by the library, which would unpack a piece at once whatever its size.
        self._unpacker = Unpacker(response.headers.get("content-encoding", ""))

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes. Raises what the connection does, ModelReplyInvalid and TimeoutError."""
        size_bytes = 0
        while True:
            async with asyncio.timeout_at(self._deadline):
                chunk = await self._content.readany()
            if not chunk:
                break
            for piece in self._unpacker.unpacked(chunk):
                size_bytes += len(piece)
                if size_bytes > self._max_bytes:
                    raise ModelReplyInvalid(f"the reply is larger than {self._max_bytes} bytes (max_reply_bytes)")
                yield piece
        if not self._unpacker.is_whole:
            raise aiohttp.ClientPayloadError("the compressed reply ended in the middle")

    async def whole(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def beginning(self, max_bytes: int) -> bytes:
        """Return at most `max_bytes` of the body."""
        body = b""
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= max_bytes:
                    break
        return body[:max_bytes]


def open_session(base_url: str, options: HttpOptions) -> aiohttp.ClientSession:
    """Return connections for one provider, which trust the certificates that httpx would.

    Raises InvalidUrlClientError: for most of what is no address of HTTP aiohttp has other errors, or an assertion.
    """
    if not _is_http(base_url):
        raise aiohttp.InvalidUrlClientError(base_url)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=options.max_connections, ssl=httpx.create_ssl_context()),
        # No limit of its own for the wait for a connection: it is part of timeout_s.
        timeout=aiohttp.ClientTimeout(sock_connect=options.connect_s, sock_read=options.silence_s),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _is_http(base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or brackets
        return False


async def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Release the connection. What it reports now concerns nobody: the answer has been read, or given up."""
    with contextlib.suppress(*CONNECTION_ERRORS):
        response.release()
        await response.wait_for_close()


def _cause(error: Exception) -> str:
    """Return the innermost reason that says something."""
    says_it_itself = isinstance(error, TimeoutError | aiohttp.ClientPayloadError)
    reason = error if says_it_itself else error.__cause__ or error
    # One line: aiohttp draws a little arrow under the byte that it could not read.
    return " ".join(str(reason).split()) or type(reason).__name__


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # an integer beyond 64 bits, or half a character in a history from elsewhere
        return encodable(json.dumps(body, ensure_ascii=False, allow_nan=False)).encode()


def _in_pieces(content: bytes) -> bytes | AsyncIterator[bytes]:
    if len(content) <= PIECE_BYTES:
        return content

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]

    return pieces()
