"""Where the calls of one reply meet again: nobody goes on before each of them has a result, or is slow.

The rule that every request of the model is answered stands on this file. Knows call ids, no clock and no Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from toolfleet.call_news import News
from toolfleet.calls import ToolResult


class Barrier:
    """Holds the results of one group of calls, and opens when no call that was added is still waited for."""

    def __init__(
        self,
        on_result: Callable[[str, str, ToolResult], None] | None = None,
        on_news: Callable[[str, str, News], None] | None = None,
        *,
        patient: bool = False,
    ) -> None:
        """Both are told the call's id and its tool."""
        self.results: dict[str, ToolResult] = {}
        self.slow: set[str] = set()
        """The calls that have no result and are not waited for any longer."""
        # Told of every result, even of one that changes nothing here: whoever looks on wants to see it.
        self._on_result = on_result
        self._on_news = on_news
        self.is_patient = patient
        """No call counts as slow, however long it takes."""
        self._awaited: set[str] = set()
        self._handles: set[str] = set()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, call_id: str) -> None:
        """Wait for one more call, also where all that were added before are back by now."""
        opened = self._opened
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            self._opened = asyncio.get_running_loop().create_future()
        self._awaited.add(call_id)

    def arrive(self, call_id: str, tool: str, result: ToolResult) -> None:
        """Take the result of a call. A call that became a handle stays one, and its result is fetched later."""
        if self._on_result is not None:
            self._on_result(call_id, tool, result)
        if call_id in self._handles:
            # The model is promised a handle: a result in its place would depend on who was quicker.
            return
        self.results[call_id] = result
        self.slow.discard(call_id)
        self._stop_awaiting(call_id)

    def tell(self, call_id: str, tool: str, news: News) -> None:
        """Pass on how far a call has come, what it asks, or what it yields."""
        if self._on_news is not None:
            self._on_news(call_id, tool, news)

    def lose_patience(self, call_ids: Iterable[str]) -> None:
        """Count these calls as slow, and wait for them no longer. A barrier that is patient waits for all the same."""
        for call_id in () if self.is_patient else call_ids:
            if call_id in self._awaited:
                self.slow.add(call_id)
                self._stop_awaiting(call_id)

    def become_handles(self, call_ids: Iterable[str]) -> None:
        """Count these calls as slow whatever comes: the model gets a handle for each."""
        handles = set() if self.is_patient else set(call_ids)
        self._handles |= handles
        self.lose_patience(handles)

    def fail(self, error: BaseException) -> None:
        """Raise this error in whoever waits: a call could not be sent."""
        if not self._opened.done():
            self._opened.set_exception(error)

    def cancel(self) -> None:
        """Cancel whoever waits: nobody collects results any more."""
        self._opened.cancel()

    @property
    def open(self) -> set[str]:
        """The calls that have no result."""
        return self.slow | self._awaited

    async def wait(self) -> None:
        """Wait until every call has a result or is slow. Raises what `fail` was given."""
        # A barrier that nothing was added to never opens by itself.
        if self._awaited:
            await self._opened

    async def is_complete_within(self, seconds: float) -> bool:
        """Wait so long at most; whether every call has a result by then. What `fail` was given, `wait` raises."""
        if self._awaited:
            moment = asyncio.get_running_loop().call_later(seconds, self._open_for_now)
            try:
                with contextlib.suppress(Exception):
                    await self._opened
            finally:
                moment.cancel()
        return not self._awaited and not self.slow

    def _open_for_now(self) -> None:
        opened = self._opened
        if not opened.done():
            self._opened = asyncio.get_running_loop().create_future()
            opened.set_result(None)

    def _stop_awaiting(self, call_id: str) -> None:
        self._awaited.discard(call_id)
        if not self._awaited and not self._opened.done():
            self._opened.set_result(None)
