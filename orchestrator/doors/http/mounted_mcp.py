"""The MCP server at /mcp, behind the same keys as everything else here. Where its SDK is missing, there is none.

Turns a request's Grant into MCP's Caller; the protocol is `toolfleet.orchestrator.doors.mcp`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Message, Receive, Scope as AsgiScope, Send

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.problems import Problem, answer
from toolfleet.orchestrator.doors.http.quotas import Limit, Quotas, over

if TYPE_CHECKING:
    from toolfleet.orchestrator.doors.mcp import McpApp

PATH: Final = "/mcp"


MAX_OPENING_BYTES: Final = 64 * 1024
"""What a session may be opened with: a client says its name and what it can do, and all of it is kept."""

SESSION_ID: Final = "mcp-session-id"
METHOD: Final = "mcp-method"


def import_mcp() -> None:
    """Import MCP's SDK, where it is there: that takes a second, which `serve_mcp` then has no need of."""
    if find_spec("mcp") is not None:
        import_module("toolfleet.orchestrator.doors.mcp")


@asynccontextmanager
async def serve_mcp(app: FastAPI, orchestrator: Orchestrator, quotas: Quotas) -> AsyncIterator[None]:
    """Serve MCP from here to the end of the block."""
    if find_spec("mcp") is None:
        yield
        return
    from toolfleet.orchestrator.doors.mcp import Caller, mcp_app  # noqa: PLC0415  # an extra

    def caller_of(request: object) -> Caller:
        grant: Grant = request.state.grant  # type: ignore[attr-defined]  # always a request: no pipe leads here
        may_approve = grant.may(Scope.APPROVE)
        return Caller(grant.tenant, grant.subject, may_call=grant.may_call, may_approve=may_approve, known_as=grant.who)

    # Which hosts may ask was settled with the grant: with a key any, without one (--insecure) on loopback its own only.
    door = mcp_app(orchestrator, caller_of=caller_of, hosts=None)
    async with door.living():
        route = Route(PATH, endpoint=_Granted(door, quotas))
        app.router.routes.append(route)
        try:
            yield
        finally:
            app.router.routes.remove(route)


def _listens(scope: AsgiScope) -> bool:
    """Return whether a request's answer is a stream of news, as its header says, which has to agree with its body."""
    return Headers(scope=scope).get(METHOD) == "subscriptions/listen"


class _Granted:
    """Lets a request pass if its grant includes calls of tools, and has room for what it opens."""

    def __init__(self, app: McpApp, quotas: Quotas) -> None:
        self._app = app
        self._quotas = quotas
        self._sessions: dict[str, Grant] = {}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        grant: Grant = scope["state"]["grant"]
        try:
            if not grant.may(Scope.RUN):
                detail = f"MCP needs a key with the scope {Scope.RUN}"
                raise Problem(HTTPStatus.FORBIDDEN, detail, code="scope-missing")
            if scope["method"] == "GET" or _listens(scope):
                with self._quotas.held(grant, Limit.LISTENERS):
                    await self._pass_on(grant, scope, receive, send)
            elif self._app.opens_session(scope):
                self._must_have_room(grant, scope)
                await self._open(grant, scope, receive, send)
            else:
                await self._pass_on(grant, scope, receive, send)
        except Problem as problem:
            await answer(problem, PATH)(scope, receive, send)

    def _must_have_room(self, grant: Grant, scope: AsgiScope) -> None:
        if len(scope["state"].get("body", b"")) > MAX_OPENING_BYTES:
            detail = f"a session is opened with at most {MAX_OPENING_BYTES} bytes"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, code="body-too-large")
        live = self._app.session_ids
        # One that is being opened has no id yet; it counts under its own.
        self._sessions = {id_: whose for id_, whose in self._sessions.items() if id_ in live or id_.startswith("-")}
        for account in self._quotas.accounts(grant):
            accounts = (self._quotas.accounts(whose) for whose in self._sessions.values())
            most = self._quotas.most(Limit.SESSIONS, account)
            if sum(account in each for each in accounts) >= most:
                raise over(Limit.SESSIONS, account, most, 60)

    async def _open(self, grant: Grant, scope: AsgiScope, receive: Receive, send: Send) -> None:
        opening = f"-{secrets.token_hex(8)}"
        self._sessions[opening] = grant

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                id_ = Headers(raw=message["headers"]).get(SESSION_ID)
                if id_ is not None:
                    self._sessions[id_] = grant
                self._sessions.pop(opening, None)
            await send(message)

        try:
            await self._pass_on(grant, scope, receive, noting)
        finally:
            self._sessions.pop(opening, None)

    async def _pass_on(self, grant: Grant, scope: AsgiScope, receive: Receive, send: Send) -> None:
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415  # an extra
        from mcp.server.auth.provider import AccessToken  # noqa: PLC0415  # an extra

        # By this the SDK knows whose a session is: to any other key it does not exist.
        owner = AccessToken(token="", client_id=grant.owner, scopes=[])
        await self._app({**scope, "user": AuthenticatedUser(owner)}, receive, send)
