"""Who a request comes from and what it may do: settled before any route sees it.

A pure ASGI layer over the keyring. Without a key only this machine is served, and only while there is none.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope as AsgiScope, Send

from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import PREFIX, ApiKey, Grant, Keyring, Scope
from toolfleet.orchestrator.doors.http.problems import Problem, answer, path_of, problem_of

OPEN: Final = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})

EVERYTHING: Final = Grant(scopes=tuple(Scope))
"""What whoever sits at this machine may do."""

BEARER: Final = HTTPBearer(
    auto_error=False, bearerFormat="tf_…", description="A key made with `toolfleet keys add`. Loopback needs none."
)


class Access:
    """Puts the request's Grant into its state, or answers 401, 403 or 429."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let the request pass with its Grant, or answer it."""
        if scope["type"] == "http" and not _is_open(scope):
            door: Door = scope["app"].state.door
            try:
                grant = await _grant_of(door, Headers(scope=scope))
            except Problem as problem:
                await answer(problem, path_of(scope))(scope, receive, send)
                return
            except ToolfleetError as error:
                await answer(problem_of(error), path_of(scope))(scope, receive, send)
                return
            scope.setdefault("state", {})["grant"] = grant
        await self._app(scope, receive, send)


def _is_open(scope: AsgiScope) -> bool:
    """Return whether a request needs no key: a callback is signed itself, and the rest tells nothing."""
    path = path_of(scope)
    return path in OPEN or (path.startswith("/v1/handles/") and path.endswith("/complete"))


async def _grant_of(door: Door, headers: Headers) -> Grant:
    presented = headers.get("authorization", "")
    scheme, _, key = presented.partition(" ")
    if scheme.lower() == "bearer" and key.strip().startswith(PREFIX):
        return await _find_key(door.keyring, key.strip())
    # Another system's key counts as none: OpenAI's client cannot be made without one.
    if door.options.is_insecure:
        return EVERYTHING
    if door.options.needs_keys or not await door.keyring.is_empty():
        raise _unauthorised("a key is needed: send `Authorization: Bearer tf_…`; `toolfleet keys add` makes one")
    _must_come_from_here(headers)
    return EVERYTHING


async def _find_key(keyring: Keyring, key: str) -> ApiKey:
    found = await keyring.find(key)
    if found is None:
        raise _unauthorised("the key is not known: it was revoked, has expired, or never was one")
    wait_s = await keyring.wait_s(found)
    if wait_s > 0:
        raise Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"this key may make {found.rate_per_s:g} requests per second; ask again in {wait_s:.2f} s",
            code="rate-limited",
            headers={"retry-after": str(math.ceil(wait_s))},
        )
    return found


def _must_come_from_here(headers: Headers) -> None:
    """Refuse what a web page made a browser send: a foreign origin, or a foreign name that was bound to loopback."""
    for header in ("host", "origin"):
        named = headers.get(header)
        if named and not is_loopback(urlsplit(named if "//" in named else f"//{named}").hostname or ""):
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"without keys only this machine is served, and the request's {header} is {named}; "
                "make a key with `toolfleet keys add`",
                code="not-from-here",
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
    """A dependency: the request's grant, which must include a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __call__(self, request: Request, _bearer: Annotated[Any, Depends(BEARER)]) -> Grant:
        """Return the grant of a request. Raises Problem."""
        grant: Grant = request.state.grant
        if not grant.may(self._scope):
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"this needs a key with the scope {self._scope}; this one has {', '.join(grant.scopes)}",
                code="scope-missing",
            )
        return grant


Reader = Annotated[Grant, Depends(needs(Scope.READ))]
Runner = Annotated[Grant, Depends(needs(Scope.RUN))]
Admin = Annotated[Grant, Depends(needs(Scope.ADMIN))]


def must_be_callable(grant: Grant, tool: str) -> None:
    """Raise Problem for a tool that the key does not include."""
    if not grant.may_call(tool):
        raise Problem(HTTPStatus.FORBIDDEN, f"this key does not include the tool {tool}", code="tool-not-allowed")
