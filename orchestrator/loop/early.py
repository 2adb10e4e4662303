"""Calls that are sent while the model still writes its reply: each is complete, and a model takes none back.

What a reply has asked for so far is written down first, so that an orchestrator that takes over goes on with these
calls instead of asking for the reply again. A reply that ends at once is not split: that would only cost a write. The
run's limits bind each call as it is sent (`run/limits.py`). What one batch costs does not grow with those before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.calls.early import send_early
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.run.events import CallsStreamed
from toolfleet.orchestrator.run.limits import Allowance
from toolfleet.orchestrator.store.journal import Journal

WAIT_S: Final = 0.05
"""How long a reply may go on after a complete call before the call is sent without waiting for the rest."""

MaskSecrets = Callable[[AssistantMessage, int], Awaitable[tuple[AssistantMessage, tuple[str, ...]]]]
"""Makes the next calls of a reply fit to be stored, those from that place on, and says which of them had secrets."""


class EarlyCalls:
    """The calls of one reply, as they become complete. `finish` it before the reply itself is written down."""

    def __init__(
        self, journal: Journal, services: CallServices, scope: Callable[[], CallScope], mask: MaskSecrets
    ) -> None:
        """`scope` makes the scope of the calls, if any is sent: mostly none is."""
        self._journal = journal
        self._services = services
        self._make_scope = scope
        self._mask = mask
        self._complete: list[RequestedCall] = []
        self._written = 0
        self._is_writing = False
        self._task: asyncio.Task[None] | None = None

    def add(self, call: RequestedCall) -> None:
        """Take the next complete call of the reply, to be sent unless the reply ends at once."""
        self._complete.append(call)
        if self._task is None and not self._allowance.is_used_up:
            self._task = asyncio.create_task(self._send_later())  # watched: `finish` raises what it raises

    def forbid(self) -> None:
        """Send nothing before the reply is whole: only then it is known what it costs."""
        self._allowance.is_used_up = True

    @cached_property
    def _allowance(self) -> Allowance:
        return Allowance(self._journal.run)

    @cached_property
    def _scope(self) -> CallScope:
        return self._make_scope()

    async def finish(self) -> None:
        """End the sending: see through what is under way, and leave the rest to the reply. Raises what that raised."""
        if self._task is None:
            return
        # A write that is cut off may have been stored all the same, and the next one would not fit.
        if not self._is_writing:
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _send_later(self) -> None:
        await asyncio.sleep(WAIT_S)
        while self._written < len(self._complete) and not self._allowance.is_used_up:
            self._is_writing = True
            await self._send(self._complete[self._written :])
            self._is_writing = False
            await asyncio.sleep(WAIT_S)
        self._task = None

    async def _send(self, complete: Sequence[RequestedCall]) -> None:
        since = self._written
        message, masked = await self._mask(AssistantMessage(tool_calls=tuple(complete)), since)
        streamed = CallsStreamed(message=message, masked=masked)
        fresh = self._journal.run.on(streamed).streamed[since:]
        self._written += len(complete)
        may_go = self._services.placement.may_go_early
        # Every call counts, also those that wait for the whole reply for another reason.
        going = [call for call in fresh if self._allowance.admits(call) and may_go(call, self._scope)]
        # Stored before it is sent: whoever takes over must know of every call that may have an effect.
        await self._journal.append(streamed.model_copy(update={"sending": tuple(call.call_id for call in going)}))
        if self._journal.run.is_interrupted:
            return  # the user was first: they are refused where they were written down
        if sent := await send_early(self._services, going, self._scope):
            await self._journal.append(sent)
