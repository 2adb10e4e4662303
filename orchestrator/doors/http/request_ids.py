"""`x-request-id` on every answer: the caller's own, where it can be written down, or one that is made here.

The outermost layer, so that refusals have it too.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "x-request-id"

THEIRS: Final = (HEADER, "x-client-request-id")
"""Where a caller, or a proxy before this server, says what the request is called."""

HARMLESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
"""What can stand in a log and a header as it came: nothing that ends a line, a word or a quotation."""


class RequestIds:
    """Gives each request a name, and says it with the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, and put its name on the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope.setdefault("state", {})["request_id"] = _name_of(Headers(scope=scope))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, named)


def request_id_of(scope: Scope) -> str:
    """Return what a request is called."""
    return str(scope["state"]["request_id"])


def _name_of(headers: Headers) -> str:
    for header in THEIRS:
        if HARMLESS.fullmatch(headers.get(header, "")):
            return headers[header]
    return f"req_{secrets.token_hex(12)}"
