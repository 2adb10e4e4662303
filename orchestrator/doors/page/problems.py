"""Problems as pages: whatever refuses a request of a browser does so in words and with a way back.

A pure ASGI layer: it sees the answers of all others, whoever has made them.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

import orjson
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfleet.orchestrator.doors.http.problems import MEDIA_TYPE, path_of
from toolfleet.orchestrator.doors.http.sessions import is_of_page
from toolfleet.orchestrator.doors.page.rendering import HEADERS, fragment

KEPT_HEADERS: Final = (b"retry-after", b"allow", b"connection")


class ProblemPages:
    """Turns problem documents on the page's paths into pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, and rewrite its answer if that tells of a problem."""
        if scope["type"] != "http" or not is_of_page(path_of(scope)):
            await self._app(scope, receive, send)
            return
        started: Message | None = None
        body = b""

        async def sent(message: Message) -> None:
            nonlocal started, body
            if message["type"] == "http.response.start" and _is_problem(message):
                started = message
                return
            if started is None or message["type"] != "http.response.body":
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                response = await _page_of(started, body, scope)
                await response(scope, receive, send)

        await self._app(scope, receive, sent)


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


async def _page_of(started: Message, body: bytes, scope: Scope) -> HTMLResponse:
    problem = orjson.loads(body)
    state = scope.get("state", {})
    text = await asyncio.to_thread(
        fragment,
        "problem.html",
        grant=state.get("grant"),
        is_signed_in=state.get("is_signed_in", False),
        path=path_of(scope),
        title=problem["title"],
        status=HTTPStatus(problem["status"]),
        detail=problem["detail"],
    )
    kept = {name.decode(): value.decode() for name, value in started["headers"] if name in KEPT_HEADERS}
    return HTMLResponse(text, status_code=started["status"], headers={**HEADERS, **kept})
