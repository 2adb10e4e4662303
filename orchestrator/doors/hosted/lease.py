"""The lease on one piece of work: held by heartbeats, each of which names the one before it.

Once it is lost it stays lost, and whoever holds it elsewhere is left alone.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NoReturn

from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.hosted.wire import NO_HEARTBEAT, Away, Refused, Wire

log = FactLog("toolfleet.hosted")

FIRST_TTL_S: Final = 60.0
"""Until the API has said how long a lease is."""

MOST_BETWEEN_S: Final = 30.0
AGAIN_S: Final = 0.5
STOPPING: Final = ("stopping", "stopped")


class LeaseEnded(Exception):
    """The work is another's, or is to stop: nothing may be posted for it from here on."""


class Lease:
    """One piece of work while it is ours. `ended` says that it is so no more, `is_lost` that it may be another's."""

    def __init__(self, wire: Wire, work_id: str) -> None:
        self._wire = wire
        self._work_id = work_id
        self._expected = NO_HEARTBEAT
        self._one_at_a_time = asyncio.Lock()
        self._ttl_s = FIRST_TTL_S
        self._held_until = time.monotonic() + FIRST_TTL_S
        self.ended = asyncio.Event()
        self.is_lost = False

    @property
    def left_s(self) -> float:
        """For how long it is certainly ours."""
        return self._held_until - time.monotonic()

    async def keep(self) -> None:
        """Extend it until it has ended."""
        while not self.ended.is_set():
            try:
                await self.confirm()
            except LeaseEnded:
                return
            except Away:
                await asyncio.sleep(max(0.0, min(AGAIN_S, self.left_s)))
            else:
                await asyncio.sleep(min(self._ttl_s / 3, MOST_BETWEEN_S))

    async def confirm(self) -> None:
        """Extend it now. Raises LeaseEnded once it has ended, and Away while nobody can say."""
        async with self._one_at_a_time:
            if self.ended.is_set():
                raise LeaseEnded
            began = time.monotonic()
            if self.left_s <= 0:
                self._lost("no heartbeat was answered for as long as it lasts")
            try:
                beat = await self._wire.heartbeat(self._work_id, self._expected, within_s=max(0.1, self.left_s / 2))
            except Refused as refused:
                self._lost(f"its heartbeat was refused ({refused.status})")
            if beat.state in STOPPING:
                log.info("hosted_work_stopped", work=self._work_id)
                self.ended.set()
                raise LeaseEnded
            if not beat.is_extended:
                self._lost("its heartbeat did not extend it")
            self._expected = beat.last
            self._ttl_s = beat.ttl_s if beat.ttl_s > 0 else self._ttl_s
            self._held_until = began + self._ttl_s

    def _lost(self, reason: str) -> NoReturn:
        log.warning("hosted_work_given_up", work=self._work_id, reason=reason)
        self.is_lost = True
        self.ended.set()
        raise LeaseEnded
