"""The requests of that protocol, by the vendor's own client, and what may come of each: an answer, Away, or Refused.

The one place that knows the SDK. It repeats nothing by itself: who asks knows what may be asked twice.
"""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolfleet.errors import ExtraMissing
from toolfleet.orchestrator.doors.hosted.session_log import TOOL_RESULT

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

POLL_MS: Final = 900
"""How long a poll waits for work; the protocol's most is 999."""

TIMEOUT_S: Final = 20.0
SILENCE_S: Final = 90.0
"""After so long without a word a stream is opened anew: nobody may be at its other end."""

PAGE: Final = 1000
NO_HEARTBEAT: Final = "NO_HEARTBEAT"
REPEATABLE: Final = frozenset({408, 409, 429})


class Away(Exception):
    """Nothing is known of what was asked: no connection, no answer in time, or an error of the API's own."""


class Refused(Exception):
    """The API has understood, and will not."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A claimed piece of work: a session, and what it is reached with."""

    id: str
    session_id: str
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat was answered."""

    last: str
    ttl_s: float
    state: str
    is_extended: bool


class Wire:
    """One environment's API, with its key or with the token that a piece of work has brought."""

    def __init__(self, environment_id: str, client: AsyncAnthropic) -> None:
        self.environment_id = environment_id
        self._client = client
        self._work = client.beta.environments.work
        self._events = client.beta.sessions.events

    def with_token(self, token: str | None) -> Wire:
        """Return the same, with the token of one piece of work where it has one."""
        if token is None:
            return self
        return Wire(self.environment_id, _bearing(self._client.copy(auth_token=token)))

    async def poll(self) -> WorkItem | None:
        """Claim what waits; None where nothing does, or nothing that is a session."""
        with _said():
            item: Any = await self._work.poll(
                self.environment_id,
                block_ms=POLL_MS,
                anthropic_worker_id=f"toolfleet-{socket.gethostname()}-{os.getpid()}",
                timeout=TIMEOUT_S,
            )
        data = getattr(item, "data", None)
        work_id, session_id = _id(item), _id(data)
        if getattr(data, "type", None) != "session" or not (work_id and session_id):
            return None
        return WorkItem(work_id, session_id, token_in(getattr(item, "secret", None)))

    async def ack(self, work_id: str) -> None:
        """Say that it has arrived; otherwise it is given out again."""
        with _said():
            await self._work.ack(work_id, environment_id=self.environment_id, timeout=TIMEOUT_S)

    async def heartbeat(self, work_id: str, expected: str, *, within_s: float) -> Beat:
        """Extend the lease if its last heartbeat is the expected one; Refused with 412 otherwise."""
        with _said():
            said: Any = await self._work.heartbeat(
                work_id,
                environment_id=self.environment_id,
                expected_last_heartbeat=expected,
                timeout=within_s,
            )
            return _beat(said)

    async def stop(self, work_id: str) -> None:
        """Give a piece of work back."""
        with _said():
            await self._work.stop(work_id, environment_id=self.environment_id, force=True, timeout=TIMEOUT_S)

    @asynccontextmanager
    async def listening(self, session_id: str) -> AsyncIterator[AsyncIterator[Any]]:
        """Yield the session's events from here on, once the connection stands."""
        with _said():
            async with await self._events.stream(session_id, timeout=SILENCE_S) as events:
                yield aiter(events)

    async def history(self, session_id: str) -> list[Any]:
        """Return all of a session's events, oldest first."""
        with _said():
            return [event async for event in self._events.list(session_id, limit=PAGE, timeout=TIMEOUT_S)]

    async def results(self, session_id: str) -> list[Any]:
        """Return those of them that are results of custom tools."""
        with _said():
            listed = self._events.list(session_id, limit=PAGE, types=[TOOL_RESULT], timeout=TIMEOUT_S)
            return [event async for event in listed]

    async def send(self, session_id: str, events: Sequence[Mapping[str, Any]], *, within_s: float) -> None:
        """Post events. Away says that they may have been taken, or not."""
        sent: Any = list(events)
        with _said():
            await self._events.send(session_id, events=sent, timeout=within_s)

    async def aclose(self) -> None:
        """Close its connections, which those with tokens share."""
        await self._client.close()


def wire_of(environment_id: str, key: str) -> Wire:
    """Return the API at ANTHROPIC_BASE_URL, or the vendor's, for who has this key. Raises ExtraMissing."""
    try:
        from anthropic import AsyncAnthropic  # noqa: PLC0415  # an extra
    except ImportError:
        raise ExtraMissing("to serve an environment needs `pip install 'toolfleet[anthropic]'`") from None
    return Wire(environment_id, _bearing(AsyncAnthropic(auth_token=key, max_retries=0)))


def token_in(secret: Any) -> str | None:
    """Return the token for one session out of the payload that a piece of work brings, where it holds one."""
    with suppress(ValueError, TypeError):
        payload = orjson.loads(base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4)))
        token = payload.get("sessions_token") if isinstance(payload, dict) else None
        return token if isinstance(token, str) and token else None
    return None


def _bearing(client: AsyncAnthropic) -> AsyncAnthropic:
    """Return the client without the API key that its environment may hold: two credentials would contradict."""
    client.api_key = None
    return client


def _beat(said: Any) -> Beat:
    """Return what a heartbeat was answered. Raises ValueError for what is no such answer."""
    last, ttl_s = getattr(said, "last_heartbeat", None), getattr(said, "ttl_seconds", None)
    if not isinstance(last, str) or not isinstance(ttl_s, int | float):
        raise ValueError("a heartbeat was answered with something else")  # noqa: TRY004  # no type of ours
    return Beat(last, ttl_s, str(getattr(said, "state", "")), getattr(said, "lease_extended", False) is True)


def _id(value: Any) -> str:
    id_ = getattr(value, "id", None)
    return id_ if isinstance(id_, str) else ""


@contextmanager
def _said() -> Iterator[None]:
    from anthropic import APIError, APIStatusError  # noqa: PLC0415  # an extra
    from httpx2 import HTTPError  # noqa: PLC0415  # comes with it

    try:
        yield
    except APIStatusError as error:
        status = error.status_code
        kind = Away(str(error)) if status in REPEATABLE or status >= 500 else Refused(status, str(error))
        raise kind from None
    except (APIError, HTTPError, ValueError) as error:  # the latter: an answer that is none
        raise Away(f"{type(error).__name__}: {error}") from None
