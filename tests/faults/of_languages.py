"""Workers in Python and in TypeScript that share a queue, and are killed in turn."""

from __future__ import annotations

import asyncio

from tests.faults.arena import Arena, fault
from tests.faults.load import IN_NODE, MIXED
from tests.workers_ts import processes

STAND = "two languages"
PROGRAM = "fault_tools.ts"
WORKERS = 2
"""Of each language, so that somebody is there for whoever was killed."""


class MixedArena(Arena):
    """As any other, with workers of both languages and none in processes."""

    queues = ("io",)

    async def prepare(self) -> None:
        """So many of each."""
        await asyncio.to_thread(self._fill)

    def _fill(self) -> None:
        for worker in [worker for worker in self.fleet.workers if not worker.is_running]:
            self.fleet.workers.remove(worker)
        for _ in range(WORKERS - len(self.fleet.alive(processes.POOL))):
            processes.start(self.fleet, PROGRAM)
        self.fleet.replenish(io=WORKERS)


@fault(
    "workers in Python and in TypeScript share a queue and are killed in turn", once=4, short=10, long=60, stand=STAND
)
async def two_languages(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, calls=5, seconds=0.1, tools=(*MIXED, *IN_NODE), pause_s=0.1):
        for number in range(times):
            await asyncio.sleep(0.3 + 0.3 * arena.rng.random())
            victims = arena.fleet.alive(processes.POOL if number % 2 == 0 else "io")
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(victims))
            arena.injected()
            await arena.prepare()
