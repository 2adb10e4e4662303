"""The MCP server at /mcp, behind the same keys as everything else here. Where its SDK is missing, it says so.

Turns a request's Grant into MCP's Caller; the protocol is `toolfleet.orchestrator.doors.mcp`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection
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
from toolfleet.orchestrator.doors.http.problems import Problem, answer, said_to_be_missing
from toolfleet.orchestrator.doors.http.quotas import Limit, Quotas, over

if TYPE_CHECKING:
    from toolfleet.orchestrator.doors.mcp import McpApp

PATH: Final = "/mcp"

ENDS_WITHIN_S: Final = 10.0
"""Longer than what goes on when the server ends may take."""

MAX_OPENING_BYTES: Final = 64 * 1024
"""What a session may be opened with: a client says its name and what it can do, and all of it is kept."""

SESSION_ID: Final = "mcp-session-id"
METHOD: Final = "mcp-method"


@asynccontextmanager
async def serve_mcp(app: FastAPI, orchestrator: Orchestrator, quotas: Quotas) -> AsyncIterator[None]:
    """Serve MCP from here to the end of the block. Raises ToolModuleError if what is named beside it cannot be."""
    if find_spec("mcp") is None:
        with said_to_be_missing(app, "MCP", "mcp", PATH):
            yield
        return
    on_demand = _OnDemand(lambda: _door_of(orchestrator))
    serving = orchestrator.supervisor.keep("mcp", on_demand.serve)
    route = Route(PATH, endpoint=_Granted(on_demand, quotas))
    app.router.routes.insert(0, route)  # before the many that it would be compared with first
    app.state.door.stream_closers.append(on_demand.close_streams)
    try:
        if orchestrator.settings.mcp_beside:
            await on_demand.app()  # a wrong name is said at the start
        yield
    finally:
        app.router.routes.remove(route)
        on_demand.close()
        await serving.ended(within_s=ENDS_WITHIN_S)
        await serving.aclose()


def _door_of(orchestrator: Orchestrator) -> McpApp:
    from toolfleet.orchestrator.doors.mcp import Caller, mcp_app  # noqa: PLC0415  # an extra

    def caller_of(request: object) -> Caller:
        grant: Grant = request.state.grant  # type: ignore[attr-defined]  # always a request: no pipe leads here
        may_approve = grant.may(Scope.APPROVE)
        return Caller(grant.tenant, grant.subject, may_call=grant.may_call, may_approve=may_approve, known_as=grant.who)

    # Which hosts may ask was settled with the grant: with a key any, without one (--insecure) on loopback its own only.
    return mcp_app(orchestrator, caller_of=caller_of, hosts=None)


class _OnDemand:
    """MCP's application, made when it is first asked for: to import its SDK is a fifth of the start of a server."""

    def __init__(self, make: Callable[[], McpApp]) -> None:
        self._make = make
        self._app: McpApp | None = None
        self._is_wanted = asyncio.Event()
        self._is_open = asyncio.Event()
        self._is_over = asyncio.Event()

    async def app(self) -> McpApp:
        """Return it, living."""
        if self._app is None:
            # On a thread: this loop has others to serve meanwhile, who may ask for it, too.
            await asyncio.to_thread(import_module, "toolfleet.orchestrator.doors.mcp")
        self._one()  # what it cannot be made of is said to whoever asks
        self._is_wanted.set()
        await self._is_open.wait()
        return self._one()

    async def serve(self) -> None:
        """Keep it alive from when it is wanted until `close`. In one task, as the SDK demands, and in no request's."""
        await self._is_wanted.wait()
        if self._is_over.is_set():
            return
        try:
            async with self._one().living():
                self._is_open.set()
                await self._is_over.wait()
        finally:
            self._is_open.clear()
            self._app = None  # it lives once

    def _one(self) -> McpApp:
        """Return the one that lives, or that lives next."""
        if self._app is None:
            self._app = self._make()
        return self._app

    def close_streams(self) -> None:
        """End what its clients listen to, if it has any."""
        if self._app is not None:
            self._app.close_streams()

    def close(self) -> None:
        """Let `serve` end."""
        self._is_over.set()
        self._is_wanted.set()


def _listens(scope: AsgiScope) -> bool:
    """Return whether a request's answer is a stream of news, as its header says, which has to agree with its body."""
    return Headers(scope=scope).get(METHOD) == "subscriptions/listen"


class _Granted:
    """Lets a request pass if its grant includes calls of tools, and has room for what it opens."""

    def __init__(self, on_demand: _OnDemand, quotas: Quotas) -> None:
        self._on_demand = on_demand
        self._quotas = quotas
        self._sessions: dict[str, Grant] = {}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        grant: Grant = scope["state"]["grant"]
        try:
            if not grant.may(Scope.RUN):
                detail = f"MCP needs a key with the scope {Scope.RUN}"
                raise Problem(HTTPStatus.FORBIDDEN, detail, code="scope-missing")
            app = await self._on_demand.app()
            if scope["method"] == "GET" or _listens(scope):
                with self._quotas.held(grant, Limit.LISTENERS):
                    await _pass_on(app, grant, scope, receive, send)
            elif app.opens_session(scope):
                self._must_have_room(grant, scope, app.session_ids)
                await self._open(app, grant, scope, receive, send)
            else:
                await _pass_on(app, grant, scope, receive, send)
        except Problem as problem:
            await answer(problem, PATH)(scope, receive, send)

    def _must_have_room(self, grant: Grant, scope: AsgiScope, live: Collection[str]) -> None:
        if len(scope["state"].get("body", b"")) > MAX_OPENING_BYTES:
            detail = f"a session is opened with at most {MAX_OPENING_BYTES} bytes"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, code="body-too-large")
        # One that is being opened has no id yet; it counts under its own.
        self._sessions = {id_: whose for id_, whose in self._sessions.items() if id_ in live or id_.startswith("-")}
        for account in self._quotas.accounts(grant):
            accounts = (self._quotas.accounts(whose) for whose in self._sessions.values())
            most = self._quotas.most(Limit.SESSIONS, account)
            if sum(account in each for each in accounts) >= most:
                raise over(Limit.SESSIONS, account, most, 60)

    async def _open(self, app: McpApp, grant: Grant, scope: AsgiScope, receive: Receive, send: Send) -> None:
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
            await _pass_on(app, grant, scope, receive, noting)
        finally:
            self._sessions.pop(opening, None)


async def _pass_on(app: McpApp, grant: Grant, scope: AsgiScope, receive: Receive, send: Send) -> None:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415  # an extra
    from mcp.server.auth.provider import AccessToken  # noqa: PLC0415  # an extra

    # By this the SDK knows whose a session is: to any other key it does not exist.
    owner = AccessToken(token="", client_id=grant.owner, scopes=[])
    await app({**scope, "user": AuthenticatedUser(owner)}, receive, send)
