"""Progress of one call, told to the client that asked for it: the newest, in order, never more than it can take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.server.session import ServerSession

from toolfleet.orchestrator.run.updates import CallProgressed, CallStarted, RunUpdate
from toolfleet.supervision import run_errand

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)


class Observed:
    """What is known of a call while its client waits: its id once it is sent, and how far it has come."""

    def __init__(self, session: ServerSession) -> None:
        self.call_id = ""
        self._session = session
        self._newest: tuple[float, str] | None = None
        self._told = -1.0
        self._news = asyncio.Event()

    def event(self, event: RunUpdate) -> None:
        """Take note of what happened to the call."""
        if isinstance(event, CallStarted):
            self.call_id = event.call_id
        elif isinstance(event, CallProgressed):
            self.progress(event.fraction, event.message)

    def progress(self, fraction: float, message: str) -> None:
        """Take note of how far the call has come. The protocol wants numbers that grow, so others are ignored."""
        if fraction > self._told:
            self._newest = (fraction, message)
            self._news.set()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell the client from here to the end of the block."""
        teller = run_errand("mcp_progress", self._tell_forever())
        try:
            yield
        finally:
            teller.cancel()
            with suppress(asyncio.CancelledError):
                await teller
        await self._tell()

    async def _tell_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._tell()

    async def _tell(self) -> None:
        if self._newest is None or self._newest[0] <= self._told:
            return
        self._told, message = self._newest
        with suppress(*_GONE):
            await self._session.report_progress(self._told, 1.0, message or None)
