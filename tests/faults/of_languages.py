"""Workers in Python, TypeScript and Go that share a queue, and are killed in turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.arena import Arena, fault
from tests.faults.load import IN_GO, IN_NODE, MIXED
from tests.workers_go import processes as in_go
from tests.workers_ts import processes as in_node

STAND = "three languages"
PROGRAM = "fault_tools.ts"
GO_PROGRAM = Path(in_go.__file__).with_name("fault_tools.go")
WORKERS = 2
"""Of each language, so that somebody is there for whoever was killed."""


class MixedArena(Arena):
    """As any other, with workers of all languages and none in processes."""

    queues = ("io",)

    async def prepare(self) -> None:
        """So many of each."""
        await asyncio.to_thread(self._fill)

    def _fill(self) -> None:
        for worker in [worker for worker in self.fleet.workers if not worker.is_running]:
            self.fleet.workers.remove(worker)
        for _ in range(WORKERS - len(self.fleet.alive(in_node.POOL))):
            in_node.start(self.fleet, PROGRAM)
        for _ in range(WORKERS - len(self.fleet.alive(in_go.POOL))):
            in_go.start(self.fleet, GO_PROGRAM)
        self.fleet.replenish(io=WORKERS)


@fault(
    "workers in Python, TypeScript and Go share a queue and are killed in turn", once=6, short=12, long=60, stand=STAND
)
async def three_languages(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, calls=5, seconds=0.1, tools=(*MIXED, *IN_NODE, *IN_GO), pause_s=0.1):
        for number in range(times):
            await asyncio.sleep(0.3 + 0.3 * arena.rng.random())
            victims = arena.fleet.alive((in_node.POOL, in_go.POOL, "io")[number % 3])
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(victims))
            arena.injected()
            await arena.prepare()
