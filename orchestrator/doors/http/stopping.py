"""Requests that are under way when the grace of a server that stops is over: they are told so."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfleet.orchestrator.doors.http.problems import RETRY_AFTER_S, Problem, answer, path_of


class Stopping:
    """Answers 503 to whoever has no answer yet when the server gives up its requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, and answer it if that is cut off."""
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if scope["type"] != "http" or not scope["app"].state.door.is_closing:
                raise
            if not has_begun:  # else it breaks off
                detail = "this server stops: ask again, there may be another one; a call that was begun goes on"
                headers = {"retry-after": str(RETRY_AFTER_S)}
                problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, code="stopping", headers=headers)
                await answer(problem, path_of(scope))(scope, receive, send)
