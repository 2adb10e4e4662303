"""What is done when the store came back older: what this orchestrator knows is written again, and its runs go on.

In this order: entries first, so that runs stand where they stood; then calls, whose messages may be lost as well; then
each run is looked at, as what could not be written again goes on from what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolfleet.logs import FactLog
from toolfleet.orchestrator.fleet.dispatch import Dispatcher
from toolfleet.orchestrator.loop.driver import Runs
from toolfleet.orchestrator.store.epoch import Suspicion
from toolfleet.orchestrator.store.run_store import RunStore

log = FactLog("toolfleet.orchestrator")


@dataclass(frozen=True, slots=True)
class Healing:
    """Restores what one orchestrator has lost with the store."""

    store: RunStore
    dispatcher: Dispatcher
    runs: Runs

    async def heal(self, suspicion: Suspicion) -> None:
        """Write again what may be missing. Nothing more happens where nothing was. Raises StoreUnreachable."""
        restored = await self.store.restore_since(suspicion.since_s)
        if not restored and not suspicion.is_certain:
            return
        again = self.dispatcher.send_again(suspicion.since_s)
        log.warning("store_came_back_older", entries_written_again=restored, calls_sent_again=again)
        await self.store.count("store_came_back_older")
        await self.runs.look_at_all()
