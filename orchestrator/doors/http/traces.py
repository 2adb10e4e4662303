"""A request that names a span (`traceparent`) is done below it: what it begins is a part of its caller's trace.

A pure ASGI layer that does nothing where this process is not traced, or where the server's own instrumentation has
made a span for the request already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from toolfleet.tracing import find_tracing

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing


class Traces:
    """Continues the traces of whoever calls."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._is_decided = False
        self._tracing: Tracing | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, below the span that it names."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._is_decided:  # at the first request: by then a provider is set, or none will be
            self._tracing, self._is_decided = find_tracing(), True
        token = None if self._tracing is None else self._tracing.attach_headers(Headers(scope=scope))
        try:
            await self._app(scope, receive, send)
        finally:
            if self._tracing is not None and token is not None:
                self._tracing.detach(token)
