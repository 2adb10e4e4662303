"""`ShardedOrchestrator.schedules`: the schedules of all shards behind the methods of one fleet's.

A schedule is on one shard, as its id says, and so are the runs that it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolfleet.errors import StoreUnreachable
from toolfleet.messages import Message
from toolfleet.misspelt import exact
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.schedules.records import Schedule
from toolfleet.orchestrator.schedules.schedules import Schedules
from toolfleet.orchestrator.shards.members import Members


class SchedulesOfShards(list[Schedule]):
    """A list of schedules, and the shards that are not in it."""

    missing: Mapping[str, str]
    """Why each of them gave no answer, by its name."""

    def __init__(self, schedules: Iterable[Schedule], missing: Mapping[str, str]) -> None:
        super().__init__(schedules)
        self.missing = dict(missing)


class ShardedSchedules:
    """The schedules of all shards. Every method raises StoreUnreachable; with a `tenant`, others' are not found."""

    def __init__(self, shards: Members[Orchestrator]) -> None:
        self._shards = shards

    async def add(self, cron: str, question: str | Sequence[Message], **options: Any) -> Schedule:
        """Ask this whenever the clock says so, on one shard: see `Schedules.add`."""
        return await (await self._shards.for_new(None)).schedules.add(cron, question, **options)

    @exact()
    async def list(self, *, tenant: str = "", limit: int = 50) -> SchedulesOfShards:
        """Return so many schedules of a tenant, the newest first; `missing` names the shards that gave no answer.

        Raises StoreUnreachable where none gave any.
        """
        pages, missing = await self._shards.each(lambda shard: shard.schedules.list(tenant=tenant, limit=limit))
        if not pages:
            raise StoreUnreachable("; ".join(f"shard {name}: {why}" for name, why in missing.items()))
        found = [schedule for page in pages.values() for schedule in page.schedules]
        newest_first = sorted(found, key=lambda schedule: -schedule.made_unix_s)
        return SchedulesOfShards(newest_first[:limit], missing)

    @exact()
    async def get(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Return a schedule as it stands. Raises ScheduleNotFound."""
        return await self._of(schedule_id).get(schedule_id, tenant=tenant)

    @exact()
    async def pause(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Begin no runs any more until `resume`: see `Schedules.pause`."""
        return await self._of(schedule_id).pause(schedule_id, tenant=tenant)

    @exact()
    async def resume(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Go on with the next tick: see `Schedules.resume`."""
        return await self._of(schedule_id).resume(schedule_id, tenant=tenant)

    @exact()
    async def remove(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Forget a schedule: see `Schedules.remove`."""
        return await self._of(schedule_id).remove(schedule_id, tenant=tenant)

    @exact()
    async def run(self, schedule_id: str, *, tenant: str | None = None, run_id: str | None = None) -> str:
        """Begin a run of it now, on its shard: see `Schedules.run`."""
        return await self._of(schedule_id).run(schedule_id, tenant=tenant, run_id=run_id)

    def _of(self, schedule_id: str) -> Schedules:
        return self._shards.of(schedule_id).schedules
