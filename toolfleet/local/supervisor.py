"""Starts the processes of a local fleet again when they die: sooner after one death than after many, and not for ever.

Watches processes only: a worker that hangs is the leases' business.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final, Protocol

from toolfleet.errors import WorkerNotReady
from toolfleet.local.worker_process import WorkerProcess

DEATHS_ALLOWED: Final = 4
WITHIN_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.5


class Processes(Protocol):
    """What is kept alive: a `LocalFleet`, or anything else that starts processes in pools."""

    workers: list[WorkerProcess]

    def start_worker(self, pool: str) -> WorkerProcess:
        """Start one more, and add it to `workers`."""
        ...


class Supervisor:
    """Keeps each pool of a fleet as large as it was started.

    A pool may lose `deaths_allowed` workers within `within_s`; the pause before each new start doubles. Forgets what
    is longer ago.
    """

    def __init__(
        self,
        fleet: Processes,
        *,
        deaths_allowed: int = DEATHS_ALLOWED,
        within_s: float = WITHIN_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._fleet = fleet
        self._deaths_allowed = deaths_allowed
        self._within_s = within_s
        self._first_pause_s = first_pause_s
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)
        self._due: list[tuple[float, str]] = []

    def look(self) -> tuple[list[WorkerProcess], list[WorkerProcess]]:
        """Return the workers that have ended since the last look, and those that were started in their place just now.

        Raises WorkerNotReady when a pool's workers keep dying.
        """
        now = time.monotonic()
        ended = [worker for worker in self._fleet.workers if not worker.is_running]
        for worker in ended:
            self._fleet.workers.remove(worker)
            self._due.append((now + self._pause_after(worker, now), worker.pool))
        due = [pool for at, pool in self._due if at <= now]
        self._due = [(at, pool) for at, pool in self._due if at > now]
        return ended, [self._fleet.start_worker(pool) for pool in due]

    def _pause_after(self, worker: WorkerProcess, now: float) -> float:
        deaths = self._deaths[worker.pool] = [at for at in self._deaths[worker.pool] if now - at < self._within_s]
        deaths.append(now)
        if len(deaths) > self._deaths_allowed:
            raise WorkerNotReady(
                f"{len(deaths)} workers of the pool {worker.pool} ended within {self._within_s:g} s; the last one: "
                f"{worker.ending()}"
            )
        return float(self._first_pause_s * 2 ** (len(deaths) - 1))
