"""Looks after budgets once a second: which there are, and what was used of them that nobody has booked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from toolfleet.errors import StoreRefuses, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.budgets.spending import Owed, Spending
from toolfleet.orchestrator.budgets.tenants import read_budgets
from toolfleet.orchestrator.errors import NewerVersion, RunNotFound
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.supervision import Kept, Supervisor, failed

log = FactLog("toolfleet.orchestrator")

TEND_EVERY_S: Final = 1.0


class Tending:
    """Keeps one orchestrator's `Spending` up to date."""

    def __init__(self, spending: Spending, store: RunStore, supervisor: Supervisor) -> None:
        self._spending = spending
        self._store = store
        self._supervisor = supervisor
        self._task: Kept | None = None
        self._told: set[str] = set()
        """The runs of which it was said that they cannot be read."""

    async def start(self) -> None:
        """Learn which budgets there are, then look after them. Raises StoreUnreachable."""
        await self.tend()
        self._task = self._supervisor.keep("budgets", self._tend_for_ever)

    async def aclose(self) -> None:
        """Stop, with a last look at what is owed. What is left then is found when the lease has ended."""
        if self._task is not None:
            await self._task.aclose()
        if self._spending.owed:
            with suppress(StoreUnreachable):
                await self.tend()

    async def tend(self) -> None:
        """One look. Raises StoreUnreachable."""
        spending = self._spending
        budgets, unbooked = await spending.ledger.tend()
        spending.tenants = read_budgets(budgets)
        for run_id in unbooked:
            await self._book_or_tell(run_id, None)
        for run_id, owed in list(spending.owed.items()):
            await self._book_or_tell(run_id, owed)

    async def _book_or_tell(self, run_id: str, owed: Owed | None) -> None:
        """Book what a run has used. One that cannot be booked is told of, and keeps no other from it."""
        try:
            await self._book(run_id, owed)
        except StoreRefuses as error:  # this key, or all: then nothing is known of the run, and it stays to be booked
            if run_id not in self._told:
                self._told.add(run_id)
                log.warning("budget_not_booked", run_id=run_id, error=str(error))
        except StoreUnreachable:
            raise
        except Exception as error:  # noqa: BLE001  # whatever stands in its history, the budgets are for all runs
            failed("budget", error, run_id=run_id)
            await self._spending.ledger.forget(run_id)
            if owed is not None:
                self._spending.owed.pop(run_id, None)

    async def _book(self, run_id: str, owed: Owed | None) -> None:
        """Book what a run has used: of a lost orchestrator, or what is `owed` here."""
        spending = self._spending
        try:
            run = (await self._store.load(run_id)).run
        except (RunNotFound, NewerVersion) as gone:
            log.warning("budget_not_booked", run_id=run_id, error=str(gone))
            await spending.ledger.forget(run_id)
            if owed is not None and spending.owed.get(run_id) is owed:
                del spending.owed[run_id]
            return
        if owed is None:
            await spending.book_lost(run)
        elif spending.owed.get(run_id) is owed:
            # Whoever goes on with it here has come first otherwise; or comes now, and holds by another name.
            del spending.owed[run_id]
            with spending.owed_unless_heard(run_id, owed):
                await spending.book_owed(run, owed)

    async def _tend_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            try:
                await self.tend()
            except StoreUnreachable as error:
                log.info("budgets_not_tended", error=str(error))
