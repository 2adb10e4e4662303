"""What live workers offer, read from their announcements. No live worker, no offer to the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

import redis.asyncio

from toolfleet.catalog import Announcement, Live, LiveWorkers, nobody_serves, offered_by, versions_by
from toolfleet.errors import StoreUnreachable
from toolfleet.keys import ANNOUNCEMENT_TTL_S
from toolfleet.lanes import Routes
from toolfleet.logs import FactLog
from toolfleet.membership import complaint, must_be_in_step, must_be_ours
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.fleet.members import orchestrators
from toolfleet.orchestrator.fleet.version_shares import Trial, VersionShares, trials_of
from toolfleet.outages import while_it_may_be_away
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

RETRY_FOR_S: Final = 30.0
"""How long Redis may be away before the caller hears of it, as for sending."""

MAX_AGE_S: Final = 1.0
"""A thousand conversations ask at once; workers come and go by the second."""

MISSED_AGE_S: Final = 0.1
"""The same for who misses a tool by its name: its worker may have just said that it is ready."""


class Catalog:
    """The tools of the fleet, as of at most a second ago; of one that is missed, as of a tenth of that."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._seal = Seal(settings)
        self._live = LiveWorkers(client, settings.keys, self._seal)
        self._strangers: list[str] = []
        self._workers: list[Announcement] = []
        self._routes = Routes()
        self._offered: Mapping[str, ToolSpec] = {}
        self._versions: Mapping[str, Mapping[int, ToolSpec]] = {}
        self._shares = VersionShares(client, settings.keys, self._seal)
        self._trials: Mapping[str, Trial] = {}
        self._read_at = -MAX_AGE_S
        self._remembers_until = float("-inf")
        self._reading = asyncio.Lock()

    async def offered(self, *wanted: str) -> Mapping[str, ToolSpec]:
        """Return every tool that a live worker serves, by name. Waits for Redis, then raises StoreUnreachable.

        `wanted`: names that the caller knows; looks again where one of them is missing.

        A connection that was cut, or a server that is restarted, is nothing that a caller has to hear of. Workers with
        another secret serve nothing of ours; raises OtherSecret when there are no others.
        """
        if self._is_too_old_for(wanted):
            # One reads for all who ask at once.
            async with self._reading:
                if self._is_too_old_for(wanted):
                    workers = self._with_remembered(self._keep_ours(await self._read()))
                    versions = self._versions if workers == self._workers else versions_by(workers)
                    trials = await self._tried(versions)
                    if workers != self._workers or trials != self._trials:
                        self._workers, self._routes = workers, Routes.of(workers)
                        self._versions, self._trials = versions, trials
                        self._offered = {**offered_by(workers), **_tried_against(trials, versions)}
                    self._read_at = time.monotonic()
        return self._offered

    def remember(self) -> None:
        """Go on offering what was offered before, until workers have had the time to announce it again.

        Called after an outage: it may have outlasted the announcements of workers that are there all the same.
        """
        self._remembers_until = time.monotonic() + ANNOUNCEMENT_TTL_S

    async def _read(self) -> Live:
        try:
            return await self.live()
        except StoreUnreachable:
            live = await while_it_may_be_away(self.live, for_s=RETRY_FOR_S)
            self.remember()  # whoever else notices the outage may be later
            return live

    def _with_remembered(self, workers: list[Announcement]) -> list[Announcement]:
        if time.monotonic() >= self._remembers_until:
            return workers
        names = {each.worker for each in workers}
        return sorted(
            [*workers, *(each for each in self._workers if each.worker not in names)], key=attrgetter("worker")
        )

    @property
    def routes(self) -> Routes:
        """Where calls go, as of the last look. A call that was routed by an older look is passed on by its worker."""
        return self._routes

    def _is_too_old_for(self, wanted: Iterable[str]) -> bool:
        age_s = time.monotonic() - self._read_at
        return age_s >= MAX_AGE_S or (age_s >= MISSED_AGE_S and any(name not in self._offered for name in wanted))

    @property
    def versions(self) -> Mapping[str, Mapping[int, ToolSpec]]:
        """The live versions of each tool that has any, as of the last look: mostly no tool has."""
        return self._versions

    @property
    def trials(self) -> Mapping[str, Trial]:
        """The versions that some new runs try, by tool, as of the last look: mostly none."""
        return self._trials

    def version_for(self, tool: str, root: str) -> int:
        """Return the version of a tool that a run gets that this one began; 0 for none. As of the last look."""
        trial = self._trials.get(tool)
        return trial.version_of(tool, root) if trial else max(self._versions[tool])

    async def _tried(self, versions: Mapping[str, Mapping[int, ToolSpec]]) -> Mapping[str, Trial]:
        """Return what is tried. Asks Redis only where several versions of a tool are live."""
        if all(len(specs) < 2 for specs in versions.values()):  # it takes two to choose
            return {}
        return trials_of(await while_it_may_be_away(self._shares.read, for_s=RETRY_FOR_S), versions)

    def in_version(self, tool: str, version: int) -> ToolSpec | None:
        """Return a tool as a call of this version is made of it, as of the last look; for 0 as new calls are."""
        return self._versions.get(tool, {}).get(version) if version else self._offered.get(tool)

    async def workers(self) -> list[Announcement]:
        """Return every live worker that has our secret, by name. Raises StoreUnreachable."""
        return (await self.live()).ours

    async def live(self) -> Live:
        """Return every live worker, and who else there is. Raises StoreUnreachable."""
        return await self._live.read()

    async def check_secret(self) -> None:
        """Raise OtherSecret when no live worker would run our calls, or anybody's change of the secret left out a step.

        Raises StoreUnreachable.
        """
        live = await self.live()
        others = await orchestrators(self._client, self._settings.keys)
        must_be_in_step({**live.proofs, **others}, self._seal)
        self._keep_ours(live)

    def _keep_ours(self, live: Live) -> list[Announcement]:
        strangers = must_be_ours(live.proofs, self._seal)
        if strangers and strangers != self._strangers:
            # They take calls from the queues that others could have run.
            log.warning("workers_with_another_secret", workers=strangers, remedy=complaint(strangers))
        self._strangers = strangers
        return [each for each in live.ours if each.worker not in strangers]

    async def choose(self, names: Iterable[str] | None) -> dict[str, ToolSpec]:
        """Return the named tools, or all. Raises UnknownTool for a name that no live worker serves."""
        if names is None:
            return dict(await self.offered())
        wanted = list(dict.fromkeys(names))
        offered = await self.offered(*wanted)
        if missing := [name for name in wanted if name not in offered]:
            known = ", ".join(sorted(offered)) or "none at all: start a worker with `toolfleet worker`"
            why = [reason for name in missing if (reason := nobody_serves(name, self._workers))]
            raise UnknownTool(
                "; ".join([f"no live worker serves {', '.join(missing)}", *why, f"the fleet offers {known}"])
            )
        return {name: offered[name] for name in wanted}


def _tried_against(trials: Mapping[str, Trial], versions: Mapping[str, Mapping[int, ToolSpec]]) -> dict[str, ToolSpec]:
    """Return the tools of which a version is tried, as all those get them whom no share gives that version."""
    return {tool: versions[tool][trial.other] for tool, trial in trials.items()}
