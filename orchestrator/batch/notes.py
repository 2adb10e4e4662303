"""Notes how a batch stands while it runs, for those who look on, and hears from them that it is to be cancelled.

Nothing waits for it: where Redis is away, the batch goes on, and is noted when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.batch.output import Output
from toolfleet.orchestrator.batch.runner import BatchRunner
from toolfleet.orchestrator.batch.summary import Prices
from toolfleet.orchestrator.store.batches import Batches, BatchRecord, BatchState, cancelled_by

log = FactLog("toolfleet.orchestrator")

EVERY_S: Final = 1.0
LAST_WITHIN_S: Final = 5.0
"""How long the end of a batch waits to be noted."""


class BatchCancelled(ToolfleetError):
    """Somebody who looks on has cancelled the batch."""


class BatchNotes:
    """The notes of one start of a batch; `begin` says first that it runs."""

    def __init__(self, batches: Batches, record: BatchRecord) -> None:
        self._batches = batches
        self._record = record
        self._figures: Callable[[], dict[str, Any]] = dict

    async def begin(self) -> None:
        """Note that it runs, and since when. Raises StoreUnreachable."""
        now = time.time()
        before = await self._batches.known(self._record.batch_id)
        began = {"began_unix_s": before.began_unix_s, "starts": before.starts + 1} if before else {"began_unix_s": now}
        self._record = self._record.model_copy(update={**began, "started_unix_s": now})
        await self._note()

    async def while_it_runs(
        self, runner: BatchRunner, output: Output, prices: Prices, work: Coroutine[Any, Any, None], *, cancels: bool
    ) -> None:
        """Do the work, and note how it goes. With `cancels` whoever stops it cancels the runs in hand.

        Raises BatchCancelled where somebody wants that, when these runs are cancelled, and whatever the work raises.
        """
        self._figures = lambda: _figures(runner, output, prices)
        running = asyncio.create_task(work)  # watched: awaited here
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=EVERY_S)
                if by := await self._noted():
                    await self._stop(running)
                    await runner.cancel_in_hand(cancelled_by(by), by=by)
                    raise BatchCancelled(cancelled_by(by))
            await running
        except BatchCancelled as cancelled:
            await self._end(BatchState.CANCELLED, str(cancelled))
            raise
        except asyncio.CancelledError:
            await self._stop(running)
            if cancels:
                await runner.cancel_in_hand("the batch was interrupted")
            await self._end(BatchState.CANCELLED if cancels else BatchState.INTERRUPTED, "it was interrupted")
            raise
        except ToolfleetError as error:
            await self._end(BatchState.INTERRUPTED, str(error)[:1000])
            raise
        await self._end(BatchState.DONE)

    async def _stop(self, running: asyncio.Task[None]) -> None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def _end(self, state: BatchState, reason: str = "") -> None:
        ended = {"state": state, "reason": reason, "ended_unix_s": time.time()}
        self._record = self._record.model_copy(update=ended)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await self._noted()

    async def _noted(self) -> str:
        """Note how it stands, if that can be noted. Returns who wants it cancelled."""
        try:
            return await self._note()
        except ToolfleetError as error:
            log.info("batch_not_noted", batch_id=self._record.batch_id, error=type(error).__name__)
            return ""

    async def _note(self) -> str:
        self._record = self._record.model_copy(update={**self._figures(), "updated_unix_s": time.time()})
        return await self._batches.save(self._record)


def _figures(runner: BatchRunner, output: Output, prices: Prices) -> dict[str, Any]:
    """Return the figures of the whole batch: of the lines that were there before, and of those written since."""
    before, tally = output.before, runner.tally
    usage = before.usage + tally.usage
    return {
        "ok": before.ok + tally.ok,
        "failed": before.failed + tally.failed,
        "refused": before.refused + tally.refused,
        "in_hand": len(runner.in_hand),
        "calls": before.calls + tally.calls,
        "failed_calls": before.failed_calls + tally.failed_calls,
        "usage": usage,
        "cost": prices.cost(usage),
    }
