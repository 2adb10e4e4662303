"""Seals stored runs with the present secret, so that the one before it can be dropped while they are still kept.

Each orchestrator that knows a previous secret does so once, after its start; what others have sealed meanwhile, the
next one that starts finds.
"""

from __future__ import annotations

from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import NewerVersion, RunNotFound
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.outages import until_redis_is_back
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.supervision import Kept, Supervisor, failed

log = FactLog("toolfleet.orchestrator")


class Resealing:
    """Goes through all stored runs, from `start` until it is done or `aclose`."""

    def __init__(self, store: RunStore, settings: Settings, supervisor: Supervisor) -> None:
        self._store = store
        self._settings = settings
        self._supervisor = supervisor
        self._kept: Kept | None = None

    def start(self) -> None:
        """Begin, if there is a previous secret."""
        if self._settings.previous_secret.get_secret_value():
            self._kept = self._supervisor.keep("resealing of runs", self._reseal_all)

    async def aclose(self) -> None:
        """Stop."""
        if self._kept is not None:
            await self._kept.aclose()

    async def _reseal_all(self) -> None:
        run_ids = await until_redis_is_back(self._store.run_ids)
        sealed = 0
        for run_id in run_ids:
            sealed += await self._reseal(run_id)
        log.info("runs_sealed_anew", runs=sealed, of=len(run_ids))

    async def _reseal(self, run_id: str) -> bool:
        """Whether that was done; what one odd record raises keeps nothing from the others."""
        try:
            return await self._store.reseal(run_id)
        except (RunNotFound, NewerVersion, *COMMAND_FAILED) as error:
            skip("run to be sealed anew", error, run_id=run_id)
        except Exception as error:  # noqa: BLE001  # a bug of ours: begun again it would meet the same run for ever
            failed("resealing of a run", error, run_id=run_id)
        return False
