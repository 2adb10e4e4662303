"""Requests' bodies: read whole before anybody sees the request, bounded in size, depth and time.

A pure ASGI layer. What comes behind it may read the body again, and hears of the client's leaving as before.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.problems import Problem, answer, path_of
from toolfleet.orchestrator.doors.http.quotas import CALLBACKS, SIGN_INS, Holding, Limit, Quotas
from toolfleet.orchestrator.doors.http.sessions import SIGN_IN

WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


MAX_KEY_BYTES: Final = 4096
"""How much whoever signs in may send: a key, and where to go then."""

DRAIN_S: Final = 2.0
DRAIN_BODIES: Final = 4
"""How much of a body that is too large is still taken, as a multiple of the largest."""


class ClientLeft(Exception):
    """The client hung up before its request was complete."""


class BoundedBodies:
    """Reads bodies, or refuses them: 413 when too large, 408 when they take too long."""

    def __init__(self, app: ASGIApp, options: ApiOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass once it has arrived, or answer it."""
        if scope["type"] != "http" or scope["method"] not in WITH_BODY:
            await self._app(scope, receive, send)
            return
        quotas: Quotas = scope["app"].state.door.quotas
        # Only callbacks and those who sign in come so far without a grant.
        nobodys = SIGN_INS if path_of(scope) == SIGN_IN else CALLBACKS
        held = quotas.holding(scope.get("state", {}).get("grant", nobodys), Limit.BODIES)
        try:
            await self._pass_on(held, scope, receive, send)
        finally:
            held.give_back()

    async def _pass_on(self, held: Holding, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                body = await self._read(held, scope, receive)
        except ClientLeft:
            return
        except TimeoutError:
            problem = Problem(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body did not arrive within {self._options.body_timeout_s:g} s",
                headers={"connection": "close"},
            )
            await answer(problem, path_of(scope))(scope, receive, send)
            return
        except Problem as problem:
            if not _waits_for_a_word(scope):
                await self._drain(receive)
            await answer(problem, path_of(scope))(scope, receive, send)
            return
        scope.setdefault("state", {})["body"] = body
        await self._app(scope, _again(body, receive), send)

    async def _read(self, held: Holding, scope: Scope, receive: Receive) -> bytes:
        announced = dict(scope["headers"]).get(b"content-length", b"")
        taken = int(announced[:20]) if announced.isdigit() else 0
        most = MAX_KEY_BYTES if path_of(scope) == SIGN_IN else self._options.max_body_bytes
        if taken > most:
            raise self._too_large(most)
        if "grant" in scope.get("state", {}):
            held.take(taken)
        else:
            # All callbacks share one account: with a number alone one of them would keep the others out.
            taken = 0
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if length > most:
                raise self._too_large(most)
            if length > taken:
                held.take(length - taken)
                taken = length
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _drain(self, receive: Receive) -> None:
        """Take what is on its way, for a moment: a client that is still sending would never see its answer."""
        left = DRAIN_BODIES * self._options.max_body_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while left > 0:
                    message = await receive()
                    if not message.get("more_body", False):
                        return
                    left -= len(message["body"])

    @staticmethod
    def _too_large(limit: int) -> Problem:
        return Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the request's body is larger than {limit} bytes",
            code="body-too-large",
            headers={"connection": "close"},
        )


def _waits_for_a_word(scope: Scope) -> bool:
    """Return whether the client sends its body once it is told to, which reading it would do."""
    return (b"expect", b"100-continue") in ((name, value.lower()) for name, value in scope["headers"])


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once more."""
    is_given = False

    async def received() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


class StrictJson(Request):
    """Reads JSON as RFC 8259 has it: no NaN, no lone surrogates, and no deeper than can be written down again."""

    _is_read = False
    _value: Any = None

    async def json(self) -> Any:
        """Return the value of the body. Raises JSONDecodeError, Problem."""
        if not self._is_read:
            value = orjson.loads(await self.body())
            limit: int = self.app.state.door.options.max_body_depth
            if _is_deeper(value, limit):
                # As a plain HTTP error: what the framework lets through while it reads a body.
                raise TooDeep(limit)
            self._value, self._is_read = value, True
        return self._value


class TooDeep(orjson.JSONDecodeError):
    """JSON that nests deeper than is accepted."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"nested deeper than {limit} levels", "", 0)


class JsonRoute(APIRoute):
    """A route whose body is strict JSON."""

    def get_route_handler(self) -> Any:
        """Return the handler, which is given requests that read strictly."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Any:
            return await handle(StrictJson(request.scope, request.receive))

        return handled


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = list(
            chain.from_iterable(
                each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
            )
        )
        if not level:
            return False
    return True
