"""The requests of `/v1/work`, and what their answers mean. What may pass is tried again; what may not is raised.

Knows HTTP and the records, and nothing of tools. On aiohttp: httpx looks at each of its connections for each request.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import httpx
import orjson
import stamina
from pydantic import BaseModel, ValidationError

from toolfleet.errors import InvalidSettings, OperatorError, ToolfleetError
from toolfleet.proxies import proxy_to
from toolfleet.work import WORK_VERSION, Batched, Refusal
from toolfleet.workers.over.batches import Answer, Batches, Spoken

A = TypeVar("A", bound=BaseModel)

ANSWER_WITHIN_S: Final = 15.0
CONNECT_WITHIN_S: Final = 10.0
WAIT_MAX_S: Final = 5.0
"""Between two tries: so late is a server noticed that is back."""

KEPT_ALIVE_S: Final = 4.0
"""How long a connection may have been idle that is used again: servers close theirs, ours after five seconds."""

SENT_BYTES_PER_S: Final = 50_000
"""A server that takes what it is sent more slowly than this counts as one that does not answer."""

IN_BATCHES: Final = frozenset({"ack", "result"})

BATCH_BYTES: Final = 256 * 1024
"""A batch has no more: it is as late as its last byte. What is larger goes by itself."""

ALL_ALIKE: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Refusals of a batch that each of its items would have met with alone."""

DEFAULT_BODY_BYTES: Final = 4 * 1024 * 1024
"""How much is sent before the server has said how much it takes."""


class KeyRefused(InvalidSettings):
    """The key is good for nothing there, or not for these tools."""


class NotServed(InvalidSettings):
    """The server does not take this worker as it is: another version, tools of others, tools that cannot be."""


class Unreachable(OperatorError):
    """The server does not answer, or not as an API of ours."""


class NotAnnounced(ToolfleetError):
    """The server has forgotten this worker: it is to announce itself again."""


class Stale(ToolfleetError):
    """The call is not this worker's any more."""


class TooLarge(ToolfleetError):
    """What was sent is more than the server takes."""


class Passing(ToolfleetError):
    """What may pass by itself. `after_s`: not before, as the server said."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


def address_of(url: str) -> str:
    """Return the address of an API. Raises InvalidSettings for one over which a key could be read by others."""
    parts = urlsplit(url if "//" in url else f"https://{url}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        raise InvalidSettings(f"--over {url[:200]!r} is no address of an API: https://toolfleet.example.com")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InvalidSettings(f"--over {url[:200]}: over plain http everybody between could read the key; use https://")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def headers_of(key: str) -> dict[str, str]:
    """Return the headers of every request. Raises KeyRefused for what cannot be a key."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyRefused(
            "no worker key: set TOOLFLEET_WORKER_KEY to one that `toolfleet keys add --scope work` printed"
        )
    return {"authorization": f"Bearer {key}", "content-type": "application/json"}


def again_after(error: Exception) -> bool | float:
    """Say to stamina whether, and when, it is worth trying again."""
    if not isinstance(error, Passing):
        return False
    return True if error.after_s is None else error.after_s


class WorkClient:
    """Speaks with one API on one event loop."""

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._proxy = proxy_to(address)
        self._session = aiohttp.ClientSession(
            headers=headers_of(key),
            # No more connections than calls at a time; the certificates are those that httpx would trust.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_ALIVE_S, ssl=httpx.create_ssl_context()),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self.max_body_bytes = DEFAULT_BODY_BYTES
        self._batches = {what: Batches(self._send, max_bytes=BATCH_BYTES) for what in IN_BATCHES}
        """One for each kind, so that a result that takes its time holds up nobody who wants to begin."""
        self._has_batches = True
        """Whether the server knows of them."""

    async def say(self, what: str, said: BaseModel, answer: type[A], *, for_s: float | None, waits_s: float = 0) -> A:
        """Send it, trying again for so long (None: for ever, 0: once). `waits_s`: how long the server may wait.

        Raises KeyRefused, NotServed, NotAnnounced, Stale, TooLarge, and Unreachable when that time is over.
        """
        body = body_of(said)
        attempts = 1 if for_s == 0 else None
        try:
            async for attempt in stamina.retry_context(
                on=again_after, attempts=attempts, timeout=for_s or None, wait_max=WAIT_MAX_S
            ):
                with attempt:
                    return answer.model_validate_json(await self._once(what, body, waits_s))
        except Passing as error:
            raise Unreachable(str(error)) from None
        raise AssertionError("stamina returns or raises")

    async def tell(self, what: str, said: BaseModel) -> None:
        """Send once what needs no answer. Raises as `say`."""
        try:
            await self._once(what, body_of(said), 0.0)
        except Passing as error:
            raise Unreachable(str(error)) from None

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._session.close()

    async def _once(self, what: str, body: bytes, waits_s: float) -> bytes:
        if len(body) > self.max_body_bytes:
            # Not left to the server: it hangs up on what is much too large, which looks like a lost connection.
            raise TooLarge(f"it has {len(body)} bytes, and the API takes {self.max_body_bytes}")
        try:
            if what in IN_BATCHES and self._has_batches and len(body) <= BATCH_BYTES:
                reply = await self._batches[what].answer(Spoken(what, body))
            else:
                reply = await self._post(Spoken(what, body), waits_s)
        except (aiohttp.ClientError, OSError) as error:
            raise Passing(f"the API at {self._address} does not answer ({_said(error)})") from None
        return answered(reply.status, reply.headers, reply.content)

    async def _send(self, batch: Sequence[Spoken]) -> Sequence[Answer]:
        """Have each of these answered, in one request if possible. Raises aiohttp.ClientError and OSError."""
        if len(batch) == 1:
            return [await self._post(batch[0])]
        items = b",".join(b'{"what":"%s","said":%s}' % (what.encode(), body) for what, body in batch)
        reply = await self._post(Spoken("batch", b'{"v":%d,"items":[%s]}' % (WORK_VERSION, items)))
        if reply.status == HTTPStatus.OK:
            try:
                answers = Batched.model_validate_json(reply.content).items
            except ValidationError:
                raise ConnectionError("what came is no answer to a batch") from None
            return [Answer(each.status, {}, orjson.dumps(each.body)) for each in answers]
        if reply.status in ALL_ALIKE or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return [reply] * len(batch)
        # It is for one of them that all were refused, or the server is an older one.
        if reply.status == HTTPStatus.NOT_FOUND and "type" in _problem(reply.content):  # no proxy's
            self._has_batches = False
        return await asyncio.gather(*map(self._post, batch))

    async def _post(self, spoken: Spoken, waits_s: float = 0.0) -> Answer:
        within_s, body = ANSWER_WITHIN_S + waits_s, spoken.body
        timeout = aiohttp.ClientTimeout(
            total=CONNECT_WITHIN_S + within_s + len(body) / SENT_BYTES_PER_S,
            sock_connect=CONNECT_WITHIN_S,
            sock_read=within_s,
        )
        async with self._session.post(
            f"{self._address}/v1/work/{spoken.what}",
            data=io.BytesIO(body),
            timeout=timeout,
            proxy=self._proxy,
            allow_redirects=False,
        ) as response:
            return Answer(response.status, response.headers, await response.read())


def body_of(said: BaseModel) -> bytes:
    """Return a request's body, with the version in front."""
    return orjson.dumps({"v": WORK_VERSION, **said.model_dump(mode="json", exclude={"v"})})


def answered(status: int, headers: Mapping[str, str], content: bytes) -> bytes:
    """Return the body of a good answer. Raises as `WorkClient.say`, and Passing."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return content
    problem = _problem(content)
    detail = str(problem.get("detail") or f"HTTP {status}")[:1000]
    kind = str(problem.get("type", "")).rpartition(":")[2]
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            raise KeyRefused(f"the API refuses this worker: {detail}")
        case HTTPStatus.PRECONDITION_FAILED:
            raise NotAnnounced(detail)
        case HTTPStatus.NOT_FOUND if kind == Refusal.NOT_YOURS:
            raise Stale(detail)
        case HTTPStatus.CONFLICT if kind in {Refusal.STALE, Refusal.OTHER_RESULT}:
            raise Stale(detail)
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise TooLarge(detail)
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.REQUEST_TIMEOUT:
            raise Passing(detail, _retry_after_s(headers))
        case code if code >= HTTPStatus.INTERNAL_SERVER_ERROR and code != HTTPStatus.NOT_IMPLEMENTED:
            raise Passing(detail, _retry_after_s(headers))
        case _:
            raise NotServed(f"the API does not take this worker: {detail}")


def _problem(content: bytes) -> dict[str, Any]:
    try:
        problem = orjson.loads(content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    try:
        return min(60.0, max(0.1, float(headers["retry-after"])))
    except (KeyError, ValueError):
        return None


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
