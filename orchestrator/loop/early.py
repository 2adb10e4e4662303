"""Calls that are sent while the model still writes its reply: each is complete, and a model takes none back.

What a reply has asked for so far is written down first, so that an orchestrator that takes over goes on with these
calls instead of asking for the reply again. A reply that ends at once is not split: that would only cost a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.calls.group import Batch, Calls
from toolfleet.orchestrator.run.events import CallsSent, CallsStreamed
from toolfleet.orchestrator.store.journal import Journal

WAIT_S: Final = 0.05
"""How long a reply may go on after a complete call before the call is sent without waiting for the rest."""

Keep = Callable[[AssistantMessage], Awaitable[tuple[AssistantMessage, tuple[str, ...]]]]
"""Masks the secrets of a reply's calls, and says which they were."""


class EarlyCalls:
    """The calls of one reply, as they become complete. `finish` it before the reply itself is written down."""

    def __init__(self, journal: Journal, calls: Calls, batch: Batch, keep: Keep) -> None:
        self._journal = journal
        self._calls = calls
        self._batch = batch
        self._keep = keep
        self._complete: list[RequestedCall] = []
        self._written = 0
        self._is_writing = False
        self._task: asyncio.Task[None] | None = None

    def add(self, call: RequestedCall) -> None:
        """The next call of the reply is complete."""
        self._complete.append(call)
        if self._task is None:
            self._task = asyncio.create_task(self._send_later())

    async def finish(self) -> None:
        """The reply is over: what is being sent is seen through, the rest is left to it. Raises what that raised."""
        if self._task is None:
            return
        if not self._is_writing:
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _send_later(self) -> None:
        await asyncio.sleep(WAIT_S)
        while self._written < len(self._complete):
            self._is_writing = True
            await self._send(self._complete[:])
            self._is_writing = False
            await asyncio.sleep(WAIT_S)
        self._task = None

    async def _send(self, complete: Sequence[RequestedCall]) -> None:
        message, masked = await self._keep(AssistantMessage(tool_calls=tuple(complete)))
        run = await self._journal.append(CallsStreamed(message=message, masked=masked))
        fresh = run.streamed[self._written :]
        self._written = len(complete)
        deadlines_unix_s, direct = await self._calls.send_early(fresh, self._batch)
        if deadlines_unix_s:
            await self._journal.append(CallsSent(deadlines_unix_s=deadlines_unix_s, direct=direct))
