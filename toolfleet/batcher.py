"""Items to one place in batches: while one batch is on its way, the next one collects.

So a lone item waits for nothing, and a thousand at once go together. Knows nothing of what is sent, or where to.

Whoever cancels every task of the loop, as a tool may, stops nothing here: the batch that was on its way is sent again.
So what is sent must do no harm the second time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from toolfleet.supervision import failed

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_Waiting = tuple[Item, "asyncio.Future[Outcome] | None", bool]
"""An item, who is told of its outcome (nobody: None), and whether it is the last one that they are told of."""


AGAIN_S: Final = 0.05
"""How soon a batch whose sending was cancelled is sent again; a loop that ends meanwhile does so in peace."""


class Batcher(Generic[Item, Outcome]):
    """Sends items in the order in which they came, one batch at a time. For one event loop."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]], *, max_batch: int) -> None:
        """`send` gives an outcome for each item, in their order. The same items may be sent twice."""
        self._send = send
        self._max_batch = max_batch
        self._waiting: deque[_Waiting[Item, Outcome]] = deque()
        self._sending: asyncio.Task[None] | None = None

    def add(self, item: Item) -> asyncio.Future[Outcome]:
        """Queue an item; what is returned has its outcome, or what `send` raised."""
        outcome = self._promise()
        self._waiting.append((item, outcome, True))
        return outcome

    def put(self, item: Item) -> None:
        """Queue an item of which nobody but `send` hears any more."""
        self._send_soon()
        self._waiting.append((item, None, True))

    def add_all(self, items: Sequence[Item]) -> asyncio.Future[Outcome]:
        """Queue some items, one at least; what is returned has the first outcome that is false, else the last one.

        They may go in several batches, of which any may fail.
        """
        outcome = self._promise()
        self._waiting.extend([(item, outcome, False) for item in items[:-1]])
        self._waiting.append((items[-1], outcome, True))
        return outcome

    def _promise(self) -> asyncio.Future[Outcome]:
        """Return a future for what is queued now."""
        self._send_soon()
        return asyncio.get_running_loop().create_future()

    def _send_soon(self) -> None:
        """Have what is queued now leave in the loop's next turn, or behind the present batch."""
        if self._sending is None:
            loop = asyncio.get_running_loop()
            self._sending = loop.create_task(self._send_all())  # watched: `_send_batch` lets nothing pass
            self._sending.add_done_callback(self._has_stopped)

    def _has_stopped(self, sending: asyncio.Task[None]) -> None:
        """Go on soon where somebody has cancelled the sending, perhaps before its first step."""
        if self._sending is not sending:
            return  # it came to its end
        self._sending = None
        if self._waiting:
            sending.get_loop().call_later(AGAIN_S, self._send_soon)

    async def drain(self) -> None:
        """Return when all that was queued is sent. Cancelling this stops no batch."""
        while self._waiting or self._sending is not None:
            self._send_soon()
            if self._sending is not None:
                await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        while self._waiting:
            # Not as a slice: what stays behind would be copied for each batch, and hundreds of thousands may wait.
            at_once = min(len(self._waiting), self._max_batch)
            await self._send_batch([self._waiting.popleft() for _ in range(at_once)])
        # Not when the task is done with, a turn of the loop later: what is queued in that turn would begin no sending.
        self._sending = None

    async def _send_batch(self, batch: Sequence[_Waiting[Item, Outcome]]) -> None:
        try:
            outcomes = await self._send([item for item, _, _ in batch])
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise
        except Exception as error:  # noqa: BLE001  # told to whoever waits
            # A bug, as `send` waits out what may pass. Whoever waits must not do so for ever, nor what comes next.
            failed("batch", error)
            for _, future, _ in batch:
                if future is not None and not future.done():
                    future.set_exception(error)
                    future.exception()  # it is told, also where nobody waits
            return
        for (_, future, is_last), outcome in zip(batch, outcomes, strict=True):
            if future is not None and (is_last or not outcome) and not future.done():
                future.set_result(outcome)
