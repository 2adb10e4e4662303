"""One request to the API of one shard: passed on as it came, or asked on somebody's behalf, within this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import orjson
from starlette.types import Message, Receive, Scope, Send

from toolfleet.orchestrator.doors.http.problems import MEDIA_TYPE
from toolfleet.orchestrator.doors.http.request_ids import HEADER as REQUEST_ID, request_id_of
from toolfleet.orchestrator.doors.shards.shard_api import ShardApi

HEADER: Final = "toolfleet-shard"
"""On a request: the shard that is meant. On an answer: the one that gave it."""


class Answer(NamedTuple):
    """What one shard has said."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def said(self) -> Mapping[str, Any]:
        """Its JSON."""
        found: Mapping[str, Any] = orjson.loads(self.body)
        return found

    @property
    def why(self) -> str:
        """What its problem document says."""
        return str(self.said.get("detail", self.status)) if self.body[:1] == b"{" else str(self.status)

    async def send_on(self, send: Send) -> None:
        """Give this answer to whoever asked."""
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": self.body})


async def pass_on(api: ShardApi, scope: Scope, receive: Receive, send: Send) -> None:
    """Let a shard's API answer a request, and say on the answer which shard it was."""
    await api.app(_scope_for(scope), receive, _Signing(api.name, send))


async def ask(api: ShardApi, scope: Scope, query: Sequence[tuple[str, str]], method: str = "GET") -> Answer:
    """Ask a shard the same with another query."""
    parts: list[bytes] = []
    started: Message = {}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal started
        if message["type"] == "http.response.start":
            started = message
        else:
            parts.append(message.get("body", b""))

    asked = {**_scope_for(scope), "method": method, "query_string": urlencode(query).encode()}
    await api.app(asked, receive, _Signing(api.name, send))
    return Answer(started["status"], started["headers"], b"".join(parts))


def _scope_for(scope: Scope) -> Scope:
    """Return the request as an application is given it: with a state of its own, and the name that it has here."""
    kept = [(name, value) for name, value in scope["headers"] if name not in {REQUEST_ID.encode(), HEADER.encode()}]
    named = (REQUEST_ID.encode(), request_id_of(scope).encode())
    return {**scope, "headers": [named, *kept], "state": {}}


class _Signing:
    """A `send` that names the shard on each answer, and in what says that it cannot be asked."""

    def __init__(self, shard: str, send: Send) -> None:
        self._shard = shard
        self._send = send
        self._held: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        """Send it on."""
        if message["type"] == "http.response.start":
            named = (HEADER.encode(), self._shard.encode())
            message = {**message, "headers": [*message["headers"], named]}
            if message["status"] == HTTPStatus.SERVICE_UNAVAILABLE and _is_problem(message):
                self._held = message
                return
        elif self._held is not None:
            self._body.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._tell_problem(self._held, b"".join(self._body))
            return
        await self._send(message)

    async def _tell_problem(self, started: Message, body: bytes) -> None:
        document = orjson.dumps({**orjson.loads(body), "shard": self._shard})
        headers = [(name, value) for name, value in started["headers"] if name != b"content-length"]
        length = (b"content-length", str(len(document)).encode())
        await self._send({**started, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": document})


def _is_problem(started: Message) -> bool:
    return (b"content-type", MEDIA_TYPE.encode()) in started["headers"]
