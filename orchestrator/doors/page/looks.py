"""One look at the fleet a second, whoever looks on: how all stands, and how its queues stood just before.

Nobody looks when nobody looks on. What is shown to whom is the templates' matter.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.status.fleet_standing import FleetStanding

log = FactLog("toolfleet.page")

EVERY_S: Final = 1.0

REMEMBERED: Final = 120
"""Looks in a sparkline."""


class Sample(NamedTuple):
    """How much a queue had to do at one moment."""

    waiting: int
    running: int


@dataclass(frozen=True)
class Look:
    """The fleet at one moment."""

    at_unix_s: float
    standing: FleetStanding
    history: dict[str, list[Sample]] = field(default_factory=dict)
    """What each queue had to do in the looks before, the newest last."""


class Looks:
    """Looks at the fleet while anybody looks on."""

    def __init__(self, door: Door) -> None:
        self._fleet = door.looking.fleet
        self._history: deque[tuple[float, dict[str, Sample]]] = deque(maxlen=REMEMBERED)
        self._newest: Look | None = None
        self._changed = asyncio.Condition()
        self._viewers = 0
        self._looking: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def viewers(self) -> int:
        """How many look on now."""
        return self._viewers

    async def newest(self) -> Look:
        """Return a look that is at most a second old. Raises StoreUnreachable."""
        async with self._lock:
            if self._newest is None or time.time() - self._newest.at_unix_s >= EVERY_S:
                self._newest = await self._look()
        return self._newest

    async def follow(self) -> AsyncGenerator[Look, None]:
        """Yield each look from now on."""
        self._viewers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_forever())  # watched: cancelled with the last viewer
        seen = None
        try:
            while True:
                async with self._changed:
                    while self._newest is seen:
                        await self._changed.wait()
                seen = self._newest
                if seen is not None:
                    yield seen
        finally:
            self._viewers -= 1
            if self._viewers == 0 and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_forever(self) -> None:
        while True:
            try:
                await self.newest()
            except ToolfleetError as error:
                log.info("look_failed", error=type(error).__name__)
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> Look:
        standing = await self._fleet.standing()
        at_unix_s = time.time()
        samples = {each.queue: Sample(each.waiting + each.held_back, each.running) for each in standing.queues}
        if not self._history or at_unix_s - self._history[-1][0] >= EVERY_S / 2:
            self._history.append((at_unix_s, samples))
        history = {queue: [found[queue] for _, found in self._history if queue in found] for queue in samples}
        return Look(at_unix_s, standing, history)
