"""The MCP server at /mcp, behind the same keys as everything else here. Where its SDK is missing, there is none.

Turns a request's Grant into MCP's Caller; the protocol is `toolfleet.orchestrator.doors.mcp`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.util import find_spec
from typing import Final

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope as AsgiScope, Send

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.problems import Problem, answer

PATH: Final = "/mcp"


@asynccontextmanager
async def serve_mcp(app: FastAPI, orchestrator: Orchestrator) -> AsyncIterator[None]:
    """Serve MCP from here to the end of the block."""
    if find_spec("mcp") is None:
        yield
        return
    from toolfleet.orchestrator.doors.mcp import Caller, mcp_app  # noqa: PLC0415  # an extra

    def caller_of(request: object) -> Caller:
        grant: Grant = request.state.grant  # type: ignore[attr-defined]  # always a request: no pipe leads here
        may_approve = grant.may(Scope.APPROVE)
        return Caller(grant.tenant, grant.subject, may_call=grant.may_call, may_approve=may_approve)

    # Which hosts may ask was settled with the grant.
    door = mcp_app(orchestrator, caller_of=caller_of, hosts=None)
    async with door.living():
        route = Route(PATH, endpoint=_Granted(door))
        app.router.routes.append(route)
        try:
            yield
        finally:
            app.router.routes.remove(route)


class _Granted:
    """Lets a request pass if its grant includes calls of tools."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        grant: Grant = scope["state"]["grant"]
        if grant.may(Scope.RUN):
            # By this the SDK knows whose a session is: to any other key it does not exist.
            from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415  # an extra
            from mcp.server.auth.provider import AccessToken  # noqa: PLC0415  # an extra

            owner = AccessToken(token="", client_id=grant.owner, scopes=[])
            await self._app({**scope, "user": AuthenticatedUser(owner)}, receive, send)
            return
        problem = Problem(HTTPStatus.FORBIDDEN, f"MCP needs a key with the scope {Scope.RUN}", code="scope-missing")
        await answer(problem, PATH)(scope, receive, send)
