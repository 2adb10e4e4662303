"""Where the faults of steered runs happen: tools that ask, sleep and yield, and waits that are short."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from tests.faults.arena import ROOT, Arena, Form, mortal_fleet
from toolfleet.testing import FaultyServer

STAND = "steered"

SETTINGS: Mapping[str, object] = {
    "schedule_min_s": 1,
    "schedule_grace_s": 5,
    "webhook_networks": "127.0.0.1/32",
    "webhook_retry_s": "0.2 0.2 0.5 0.5 1 1 2 2 2 2 2 2 2 2",
    "webhook_timeout_s": 0.6,
}


class SteeredArena(Arena):
    """As any other, with one worker and tools of its own."""

    queues = ("io",)

    @classmethod
    @asynccontextmanager
    async def open(cls, stand: str, ledger: Path, form: Form, seed: str) -> AsyncIterator[Self]:
        async with AsyncExitStack() as stack:
            server = FaultyServer()
            fleet = await stack.enter_async_context(
                mortal_fleet(server, "tests.faults.steered_tools", ROOT, ledger, settings=SETTINGS, io=1)
            )
            yield cls(server, fleet, ledger, form, seed)

    async def prepare(self) -> None:
        """One worker, however many the fault before has left."""
        for surplus in self.fleet.alive("io")[1:]:
            self.fleet.kill(surplus)
        await self.replenish(io=1)
