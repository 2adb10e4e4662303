"""The requests of `/v1/work`, and what their answers mean. What may pass is tried again; what may not is raised.

Knows HTTP and the records, and nothing of tools.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import orjson
import stamina
from pydantic import BaseModel

from toolfleet.errors import InvalidSettings, OperatorError, ToolfleetError
from toolfleet.work import WORK_VERSION, Refusal

A = TypeVar("A", bound=BaseModel)

ANSWER_WITHIN_S: Final = 15.0
CONNECT_WITHIN_S: Final = 10.0
WAIT_MAX_S: Final = 5.0
"""Between two tries: so late is a server noticed that is back."""

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
        timeout = httpx.Timeout(ANSWER_WITHIN_S, connect=CONNECT_WITHIN_S, pool=None)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=address, headers=headers_of(key), timeout=timeout, limits=limits)
        self.max_body_bytes = DEFAULT_BODY_BYTES

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
        await self._http.aclose()

    async def _once(self, what: str, body: bytes, waits_s: float) -> bytes:
        if len(body) > self.max_body_bytes:
            # Not left to the server: it hangs up on what is much too large, which looks like a lost connection.
            raise TooLarge(f"it has {len(body)} bytes, and the API takes {self.max_body_bytes}")
        timeout = httpx.Timeout(ANSWER_WITHIN_S + waits_s, connect=CONNECT_WITHIN_S, pool=None)
        try:
            response = await self._http.post(f"/v1/work/{what}", content=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise Passing(f"the API at {self._http.base_url} does not answer ({_said(error)})") from None
        return answered(response)


def body_of(said: BaseModel) -> bytes:
    """Return a request's body, with the version in front."""
    return orjson.dumps({"v": WORK_VERSION, **said.model_dump(mode="json", exclude={"v"})})


def answered(response: httpx.Response) -> bytes:
    """Return the body of a good answer. Raises as `WorkClient.say`, and Passing."""
    if response.is_success:
        return response.content
    problem = _problem(response)
    detail = str(problem.get("detail") or f"HTTP {response.status_code}")[:1000]
    kind = str(problem.get("type", "")).rpartition(":")[2]
    match response.status_code:
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
            raise Passing(detail, _retry_after_s(response))
        case code if code >= HTTPStatus.INTERNAL_SERVER_ERROR and code != HTTPStatus.NOT_IMPLEMENTED:
            raise Passing(detail, _retry_after_s(response))
        case _:
            raise NotServed(f"the API does not take this worker: {detail}")


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _retry_after_s(response: httpx.Response) -> float | None:
    try:
        return min(60.0, max(0.1, float(response.headers["retry-after"])))
    except (KeyError, ValueError):
        return None


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
