"""What one call's client hears while it waits: the newest progress, and log messages from the level it asked for.

In order, and never more than it can take: of progress the newest, of messages the last hundred.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio

from toolfleet.calls import Failed, Returned
from toolfleet.orchestrator.doors.mcp.log_messages import (
    Context,
    LogMessage,
    end_message,
    message_of,
    progress_message,
    wanted_levels,
)
from toolfleet.orchestrator.run.updates import CallAsks, CallProgressed, CallStarted, CallYielded, RunUpdate
from toolfleet.strict_json import written
from toolfleet.supervision import run_errand

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)

MOST_CHARS: Final = 65_536
"""Of what a tool yields faster than its client reads, the newest; the result has all of it."""

MOST_MESSAGES: Final = 100
"""A client that reads more slowly than its tool speaks misses the older ones."""


class Observed:
    """What is known of a call while its client waits: its id once it is sent, and how far it has come."""

    def __init__(self, ctx: Context, tool: str) -> None:
        self.call_id = ""
        self.asks = False
        """Whether it has asked a person something."""
        self.ctx = ctx
        """Of the client's request."""
        self._tool = tool
        self._wanted = wanted_levels(ctx)
        self._messages: deque[LogMessage] = deque(maxlen=MOST_MESSAGES)
        self._newest: tuple[float, str] | None = None
        self._told = -1.0
        self._pieces, self._count = "", 0
        self._news = asyncio.Event()
        self._is_over = False

    def event(self, event: RunUpdate) -> None:
        """Take note of what happened to the call."""
        if isinstance(event, CallStarted):
            self.call_id = event.call_id
        if isinstance(event, CallAsks):
            self.asks = True
        self._say(message_of(event))
        if isinstance(event, CallProgressed):
            self._come(event.fraction, event.message)
        if isinstance(event, CallYielded):
            self._yielded(event)

    def progress(self, fraction: float, message: str) -> None:
        """Take note of how far the call has come, where somebody had to ask."""
        if self._come(fraction, message):
            self._say(progress_message(self._tool, self.call_id, fraction, message))

    def ended(self, result: Returned | Failed) -> None:
        """Take note of how the call has ended."""
        self._say(end_message(self._tool, self.call_id, result))

    def _yielded(self, event: CallYielded) -> None:
        """Take note of pieces of the result: told as progress, which counts them over all attempts."""
        if event.voids:
            self._pieces += " [begun anew: what came before is void] "
        self._pieces = (self._pieces + (event.text or "".join(map(written, event.values))))[-MOST_CHARS:]
        self._count += max(1, event.count)
        self._news.set()

    def _come(self, fraction: float, message: str) -> bool:
        """Return whether this is news. The protocol wants numbers that grow, so others are ignored."""
        if fraction <= max(self._told, self._newest[0] if self._newest else -1.0):
            return False
        self._newest = (fraction, message)
        self._news.set()
        return True

    def _say(self, message: LogMessage | None) -> None:
        if message is not None and message.level in self._wanted:
            self._messages.append(message)
            self._news.set()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell the client from here to the end of the block."""
        teller = run_errand("mcp_progress", self._tell_until_it_is_over())
        try:
            yield
        except BaseException:
            await asyncio.sleep(0)  # so that it has begun: what never begins is never awaited
            teller.cancel()
            with suppress(asyncio.CancelledError):
                await teller
            raise
        # By itself: who cancels it may do so in the midst of a message.
        self._is_over = True
        self._news.set()
        await teller

    async def _tell_until_it_is_over(self) -> None:
        while not self._is_over:
            await self._news.wait()
            self._news.clear()
            await self._tell()
        await self._tell()

    async def _tell(self) -> None:
        with suppress(*_GONE):
            while self._messages:
                # A message, unlike progress, is not asked for with a token of its own: it goes where the answer will.
                message = self._messages.popleft().notification()
                await self.ctx.session.send_notification(message, related_request_id=self.ctx.request_id)
            if self._pieces:
                pieces, self._pieces = self._pieces, ""
                self._told = max(self._told, 0.0) + self._count
                self._count = 0
                await self.ctx.session.report_progress(self._told, None, pieces)
            if self._newest is not None and self._newest[0] > self._told:
                self._told, message_text = self._newest
                await self.ctx.session.report_progress(self._told, 1.0, message_text or None)
