"""Between the API's routes and a key without the scope `payloads`: no answer passes with what calls and messages hold.

Whatever a route answers goes through here, so that none can forget it: in JSON and in streams only what `hiding` names
is shown, and anything else is refused. Pages for browsers are none of its business: they hide what they show.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from toolfleet.orchestrator.doors.http.hiding import hidden_json
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.problems import MEDIA_TYPE as PROBLEM, Problem, answer

API: Final = "/v1/"

OF_THE_FLEET: Final = (
    "/v1/tools",
    "/v1/workers",
    "/v1/queues",
    "/v1/models",
    "/v1/limits",
    "/v1/budget",
    "/v1/spending",
    "/v1/overview",
)
"""What is said there is of the fleet, and of no call."""

WORK: Final = "/v1/work/"
"""Where workers have the calls of their tools, and keys of another scope nothing."""

NO_BODY: Final = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}

END_OF_EVENT: Final = b"\n\n"
DATA: Final = b"data: "


def behind_wall(grant: Grant, path: str, send: Send) -> Send:
    """Return a `send` for this grant's answers: the same one where it may see what calls hold."""
    if grant.may(Scope.PAYLOADS) or not path.startswith(API) or path.startswith((*OF_THE_FLEET, WORK)):
        return send
    return _Wall(path, send)


def payloads_needed() -> Problem:
    """Return what a key without the scope is told where something cannot be shown in part."""
    return Problem(
        HTTPStatus.FORBIDDEN,
        f"this needs a key with the scope {Scope.PAYLOADS}: it is what a call holds, as a whole",
        code="scope-missing",
    )


class _Wall:
    """One answer on its way to the client."""

    def __init__(self, path: str, send: Send) -> None:
        self._path = path
        self._send = send
        self._start: Message | None = None
        self._pending = b""
        self._body: Callable[[Message], Awaitable[None]] = self._pass

    async def __call__(self, message: Message) -> None:
        """Send on what may be shown."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        kind = MutableHeaders(raw=list(start["headers"])).get("content-type", "").partition(";")[0]
        if kind == PROBLEM or start["status"] in NO_BODY:
            await self._send(start)
        elif kind == "application/json":
            self._start, self._body = start, self._gather
        elif kind == "text/event-stream":
            self._body = self._stream
            await self._send(start)
        else:
            self._body = self._drop
            refused = answer(payloads_needed(), self._path)
            await self._send({"type": "http.response.start", "status": 403, "headers": refused.raw_headers})
            await self._send({"type": "http.response.body", "body": refused.body})

    async def _pass(self, message: Message) -> None:
        await self._send(message)

    async def _drop(self, message: Message) -> None:
        """Send nothing more."""

    async def _gather(self, message: Message) -> None:
        self._pending += message.get("body", b"")
        if message.get("more_body"):
            return
        shown = hidden_json(self._pending) if self._pending else b""
        headers = MutableHeaders(raw=list((self._start or message)["headers"]))
        headers["content-length"] = str(len(shown))
        await self._send({**(self._start or message), "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": shown})

    async def _stream(self, message: Message) -> None:
        """Send on whole events; what is begun of one waits for the rest of it."""
        *whole, self._pending = (self._pending + message.get("body", b"")).split(END_OF_EVENT)
        shown = b"".join(_event(each) + END_OF_EVENT for each in whole)
        if shown or not message.get("more_body"):
            await self._send({**message, "body": shown})


def _event(text: bytes) -> bytes:
    lines = text.split(b"\n")
    return b"\n".join(DATA + hidden_json(line[len(DATA) :]) if line.startswith(DATA) else line for line in lines)
