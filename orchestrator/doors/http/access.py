"""Who a request comes from and what it may do: settled before any route sees it.

A pure ASGI layer over the keyring. Nobody is served without a key, whether or not there is one: a key that is revoked,
or lost with its Redis, opens nothing. The exceptions are what is open to all (`OPEN`), callbacks, whose addresses are
signed, and a server that was told to be open, `serve --insecure`: on loopback that one still refuses web pages.
"""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope as AsgiScope, Send

from toolfleet.errors import ToolfleetError
from toolfleet.local.local_key import PREFIX
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import ApiKey, Grant, Keyring, Scope
from toolfleet.orchestrator.doors.http.payload_wall import behind_wall
from toolfleet.orchestrator.doors.http.problems import Problem, answer, path_of, problem_of
from toolfleet.orchestrator.doors.http.quotas import Limit, Quotas
from toolfleet.orchestrator.doors.http.sessions import (
    LIVE,
    LOCAL,
    SIGN_IN,
    grant_of,
    is_of_page,
    is_open,
    must_be_from_here,
    session_in,
)

OPEN: Final = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/.well-known/agent-card.json"})

READING: Final = frozenset({"GET", "HEAD"})

ANYBODY: Final = Grant(scopes=tuple(Scope))
"""What everybody may do at a server that was told to be open (`serve --insecure`)."""

BEARER: Final = HTTPBearer(
    auto_error=False,
    bearerFormat="tf_…",
    description="A key: `toolfleet keys add` makes one, `toolfleet keys local` prints that of this machine's user.",
)

COMPLETE: Final = re.compile(r"/v1/handles/([^/]+)/complete")
"""Where another system ends its job: the address itself is signed."""


WAITING: Final = re.compile(rf"/v1/runs/[^/]+/events|/v1/handles/.*|/mcp|/a2a/v1/tasks/[^/]+:subscribe|.*/{LIVE}")
"""Reads that wait for something; all others are answered at once, and some of them at a time."""

MAX_DIGITS: Final = 16

PIECE_BYTES: Final = 64 * 1024


class Access:
    """Puts the request's Grant into its state, or answers 401, 403 or 429."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let the request pass with its Grant, or answer it."""
        if scope["type"] == "http":
            try:
                if await _is_sent_to_sign_in(scope):
                    await _to_sign_in(scope)(scope, receive, send)
                    return
                await _admit(scope)
                grant: Grant | None = scope["state"].get("grant")
                if grant is not None:
                    await self._within_limits(grant, scope, receive, send)
                    return
            except Problem as problem:
                await answer(problem, path_of(scope))(scope, receive, send)
                return
            except ToolfleetError as error:
                await answer(problem_of(error), path_of(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _within_limits(self, grant: Grant, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer the request within what its key and its tenant may use. Raises Problem before it has begun."""
        quotas: Quotas = scope["app"].state.door.quotas
        quotas.count(grant)
        shown = behind_wall(grant, path_of(scope), in_pieces(send))
        with ExitStack() as held:
            held.enter_context(quotas.held(grant, Limit.REQUESTS))
            scope["state"]["held"] = held
            if scope["method"] == "GET" and not WAITING.fullmatch(path_of(scope)):
                async with quotas.turns(grant):
                    await self._app(scope, receive, shown)
            else:
                await self._app(scope, receive, shown)


def in_pieces(send: Send) -> Send:
    """Return a `send` that ends when all but a last piece was taken: a server that is given all keeps it, and goes on.

    So whoever does not take an answer keeps their place, and no more than that.
    """

    async def sent(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= PIECE_BYTES:
            await send(message)
            return
        last = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, last, PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({**message, "body": body[last:]})

    return sent


async def _is_sent_to_sign_in(scope: AsgiScope) -> bool:
    """Put the grant of a session into the request's state; return whether somebody without one asks for the page.

    Raises Problem, StoreUnreachable.
    """
    door: Door = scope["app"].state.door
    state = scope.setdefault("state", {})
    if not is_of_page(path_of(scope)) or is_open(path_of(scope)):
        return False
    session = session_in(scope, door.session_seal)
    grant = None if session is None else await grant_of(session, door.keyring, door.local_key)
    if grant is not None:
        if isinstance(grant, ApiKey):
            await _must_be_within_rate(door.keyring, grant)
        state["grant"] = grant
        state["is_signed_in"] = True
        return False
    return not door.options.is_insecure and "authorization" not in Headers(scope=scope)


async def may_still(scope: AsgiScope, door: Door) -> bool:
    """Return whether whoever sent a request some time ago would still be let in. Raises StoreUnreachable."""
    if not scope["state"].get("is_signed_in"):
        headers = Headers(scope=scope)
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return door.options.is_insecure
        return door.local_key.is_it(key.strip()) or await door.keyring.find(key.strip()) is not None
    session = session_in(scope, door.session_seal)
    return session is not None and await grant_of(session, door.keyring, door.local_key) is not None


def _to_sign_in(scope: AsgiScope) -> Response:
    """Make the answer to whoever has to sign in first: what only listens is ended, and asks no more."""
    if path_of(scope).endswith(f"/{LIVE}"):
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    asked = path_of(scope)
    if scope["method"] in READING and scope["query_string"]:
        asked += f"?{scope['query_string'].decode('latin-1')}"
    query = f"?next={quote(asked, safe='/')}" if scope["method"] in READING and asked != "/" else ""
    return RedirectResponse(f"{SIGN_IN}{query}", status_code=HTTPStatus.SEE_OTHER)


def _must_read(scope: AsgiScope) -> None:
    """Raise Problem for what does not only read an open path: nobody takes a body from whom nobody knows."""
    if scope["method"] not in READING:
        detail = f"{scope['method']} cannot be used on {path_of(scope)}"
        raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"allow": "GET"})


async def _admit(scope: AsgiScope) -> None:
    """Put the request's Grant into its state; one of an open path, and a callback, have none.

    Raises Problem, Refused for a callback that nobody signed.
    """
    door: Door = scope["app"].state.door
    scope.setdefault("state", {})
    if path_of(scope) in OPEN:
        _must_read(scope)
        return
    if is_of_page(path_of(scope)):
        if scope["method"] not in READING:
            must_be_from_here(Headers(scope=scope))
        if "grant" in scope["state"] or is_open(path_of(scope)):
            return
    callback = COMPLETE.fullmatch(path_of(scope)) if scope["method"] == "POST" else None
    if callback is not None:
        # Before its body is taken: whoever has no such address must not fill the memory.
        _must_be_signed(door, callback[1], scope["query_string"])
        return
    grant = await grant_by_key(door, Headers(scope=scope), scope.get("server"))
    if isinstance(grant, ApiKey):
        await _must_be_within_rate(door.keyring, grant)
    scope["state"]["grant"] = grant


def _must_be_signed(door: Door, call_id: str, query: bytes) -> None:
    said = parse_qs(query.decode("ascii", "replace"))
    expires, signature = said.get("expires", [""])[-1], said.get("signature", [""])[-1]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= MAX_DIGITS):
        raise Problem(HTTPStatus.FORBIDDEN, "this address was not given out by this fleet", code="refused")
    door.seal.check_callback(call_id, int(expires), signature)


async def grant_by_key(door: Door, headers: Headers, server: tuple[str, int | None] | None) -> Grant:
    """Return what whoever sends these headers may do. Raises Problem, StoreUnreachable."""
    presented = headers.get("authorization", "")
    scheme, _, text = presented.partition(" ")
    key = text.strip()
    if scheme.lower() == "bearer" and key.startswith(PREFIX):
        return LOCAL if door.local_key.is_it(key) else await _find_key(door.keyring, key)
    # Another system's key counts as none: OpenAI's client cannot be made without one.
    if door.options.is_insecure:
        _must_not_be_a_page(server, headers)
        return ANYBODY
    raise _unauthorised(
        "a key is needed: send `Authorization: Bearer tf_…`. `toolfleet keys local` prints the one of this machine's "
        "user, `toolfleet keys add` makes others"
    )


def _must_not_be_a_page(server: tuple[str, int | None] | None, headers: Headers) -> None:
    """Refuse what a web page makes a browser of this machine send to loopback.

    It tells on itself by its origin, or by a name of its own that was bound to loopback. `server` is where the request
    arrived; on any other address whoever comes is served, as was said.
    """
    if server is None or not is_loopback(server[0]):
        return
    for header in ("host", "origin"):
        named = headers.get(header)
        if named and not _names_loopback(named):
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"without a key only this machine is served on loopback, and the request's {header} is {named[:200]}: "
                "send a key (`toolfleet keys local`, `toolfleet keys add`), or ask by the name localhost",
                code="not-from-here",
            )


def _names_loopback(named: str) -> bool:
    try:
        return is_loopback(urlsplit(named if "//" in named else f"//{named}").hostname or "")
    except ValueError:
        return False


async def _find_key(keyring: Keyring, key: str) -> ApiKey:
    found = await keyring.find(key)
    if found is None:
        raise _unauthorised("the key is not known: it was revoked, has expired, or never was one")
    return found


async def _must_be_within_rate(keyring: Keyring, key: ApiKey) -> None:
    wait_s = await keyring.wait_s(key)
    if wait_s > 0:
        raise Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"this key may make {key.rate_per_s:g} requests per second; ask again in {wait_s:.2f} s",
            code="rate-limited",
            headers={"retry-after": str(math.ceil(wait_s))},
        )


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address can only be this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unauthorised(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"www-authenticate": "Bearer"})


class needs:  # noqa: N801  # reads as a word in a route's signature: Depends(needs(Scope.RUN))
    """A dependency: the request's grant, which must include a scope.

    A coroutine, as all dependencies are that wait for nothing: FastAPI would have a thread run them.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, request: Request, _bearer: Annotated[Any, Depends(BEARER)]) -> Grant:
        """Return the grant of a request. Raises Problem."""
        grant: Grant = request.state.grant
        must_have(grant, self._scope)
        return grant


Reader = Annotated[Grant, Depends(needs(Scope.READ))]
PayloadReader = Annotated[Grant, Depends(needs(Scope.PAYLOADS))]
Runner = Annotated[Grant, Depends(needs(Scope.RUN))]
Admin = Annotated[Grant, Depends(needs(Scope.ADMIN))]


Approver = Annotated[Grant, Depends(needs(Scope.APPROVE))]


def must_have(grant: Grant, scope: Scope) -> None:
    """Raise Problem for a key without a scope."""
    if not grant.may(scope):
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"this needs a key with the scope {scope}; this one has {', '.join(grant.scopes)}",
            code="scope-missing",
        )


def must_be_callable(grant: Grant, tool: str) -> None:
    """Raise Problem for a tool that the key does not include."""
    if not grant.may_call(tool):
        raise Problem(HTTPStatus.FORBIDDEN, f"this key does not include the tool {tool}", code="tool-not-allowed")
