"""Progress and checkpoints of running calls on their way: the newest of each call, a few times a second.

May be given on any thread. Progress that does not arrive is lost; a checkpoint is tried again until its call ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import orjson

from toolfleet.calls import Progress
from toolfleet.context import Context
from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.work import CheckpointSaid, ProgressSaid
from toolfleet.workers.over.client import Unreachable, WorkClient

log = FactLog("toolfleet.workers")

INTERVAL_S: Final = 0.2
MESSAGE_CHARS: Final = 10_000


class Reports:
    """What the calls of one event loop report."""

    def __init__(self, client: WorkClient, held: Mapping[str, str]) -> None:
        """`held`: the attempts by their calls; of others nothing is sent."""
        self._client = client
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._progress: dict[str, Progress] = {}
        self._checkpoints: dict[str, bytes] = {}
        self._news = asyncio.Event()

    def of(self, call_id: str) -> Callable[[Progress], None]:
        """Return what reports progress of a call."""
        return lambda progress: self._soon(partial(self._progress.__setitem__, call_id, progress))

    def keep(self, context: Context, text: bytes) -> None:
        """Have a checkpoint kept."""
        self._soon(partial(self._checkpoints.__setitem__, context.call_id, text))

    async def run(self) -> None:
        """Send what there is, for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()
            await asyncio.sleep(INTERVAL_S)

    async def flush(self) -> None:
        """Send what there is."""
        checkpoints, self._checkpoints = self._checkpoints, {}
        for call_id, text in checkpoints.items():
            await self._keep(call_id, text)
        progress, self._progress = self._progress, {}
        for call_id, each in progress.items():
            attempt = self._held.get(call_id)
            if attempt is not None:
                said = ProgressSaid(attempt=attempt, fraction=each.fraction, message=each.message[:MESSAGE_CHARS])
                await self._tell("progress", said)

    def _soon(self, note: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._note, note)

    def _note(self, note: Callable[[], None]) -> None:
        note()
        self._news.set()

    async def _keep(self, call_id: str, text: bytes) -> None:
        attempt = self._held.get(call_id)
        if attempt is None:
            return
        if not await self._tell("checkpoint", CheckpointSaid(attempt=attempt, data=orjson.loads(text))):
            self._checkpoints.setdefault(call_id, text)  # unless a newer one has come
            self._news.set()

    async def _tell(self, what: str, said: ProgressSaid | CheckpointSaid) -> bool:
        """Send it. Returns False where it may arrive another time."""
        try:
            await self._client.tell(what, said)
        except Unreachable:
            return False
        except ToolfleetError as error:
            log.info("report_refused", what=what, error=str(error)[:300])
        return True
