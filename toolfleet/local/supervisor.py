"""Starts the processes of a local fleet again when they die: sooner after one death than after many.

Watches processes and the size of their logs; a worker that hangs ends itself.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final, Protocol

from toolfleet.errors import WorkerNotReady
from toolfleet.local.worker_process import WorkerProcess

REFUSALS_ALLOWED: Final = 4
WITHIN_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 15.0


class Processes(Protocol):
    """What is kept alive: a `LocalFleet`, or anything else that starts processes in pools."""

    workers: list[WorkerProcess]

    def start_worker(self, pool: str) -> WorkerProcess:
        """Start one more, and add it to `workers`."""
        ...


class Supervisor:
    """Keeps each pool of a fleet as large as it was started.

    The pause before each new start doubles up to MAX_PAUSE_S, and deaths that are longer than `within_s` ago are
    forgotten. A pool is given up only when more than `refusals_allowed` of its processes said within that time that
    they cannot serve; one that was killed, by a tool of its own for example, may always come again.
    """

    def __init__(
        self,
        fleet: Processes,
        *,
        refusals_allowed: int = REFUSALS_ALLOWED,
        within_s: float = WITHIN_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._fleet = fleet
        self._refusals_allowed = refusals_allowed
        self._within_s = within_s
        self._first_pause_s = first_pause_s
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)
        self._refusals: defaultdict[str, list[float]] = defaultdict(list)
        self._due: list[tuple[float, str]] = []

    def look(self) -> tuple[list[WorkerProcess], list[WorkerProcess]]:
        """Return the workers that have ended since the last look, and those that were started in their place just now.

        Raises WorkerNotReady when a pool's workers keep saying that they cannot serve.
        """
        now = time.monotonic()
        for worker in self._fleet.workers:
            worker.bound_log()
        ended = [worker for worker in self._fleet.workers if not worker.is_running]
        for worker in ended:
            self._fleet.workers.remove(worker)
            self._due.append((now + self._pause_after(worker, now), worker.pool))
        due = [pool for at, pool in self._due if at <= now]
        self._due = [(at, pool) for at, pool in self._due if at > now]
        return ended, [self._fleet.start_worker(pool) for pool in due]

    def _pause_after(self, worker: WorkerProcess, now: float) -> float:
        deaths = self._of_late(self._deaths, worker, now)
        if worker.refused:
            refusals = self._of_late(self._refusals, worker, now)
            if len(refusals) > self._refusals_allowed:
                raise WorkerNotReady(
                    f"{len(refusals)} workers of the pool {worker.pool} ended within {self._within_s:g} s; the last "
                    f"one: {worker.ending()}"
                )
        return float(min(MAX_PAUSE_S, self._first_pause_s * 2 ** (len(deaths) - 1)))

    def _of_late(self, moments: defaultdict[str, list[float]], worker: WorkerProcess, now: float) -> list[float]:
        """Note one more moment of the worker's pool. Returns those that are not forgotten yet."""
        moments[worker.pool] = [at for at in moments[worker.pool] if now - at < self._within_s] + [now]
        return moments[worker.pool]
