"""How a whole fleet stands: queues, workers, runs, limits, budgets, and what fails. For who looks at all of it.

Reads only. What it asks Redis grows with workers, queues and orchestrators, and not with what is stored: no list is
walked, and of all that has no end only the newest is read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.catalog import Announcement, Live, offered_by, versions_by
from toolfleet.membership import strangers
from toolfleet.orchestrator.budgets.tenants import Standing, TenantBudgets
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.limits import FleetLimits, LimitsStanding
from toolfleet.orchestrator.fleet.queues import Queues, QueueStanding
from toolfleet.orchestrator.fleet.trials import Trials
from toolfleet.orchestrator.fleet.version_shares import VersionShares
from toolfleet.orchestrator.fleet.versions import FleetVersions, VersionsStanding
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.dead_letters import DeadLetter, DeadLetters
from toolfleet.orchestrator.store.leases import living
from toolfleet.orchestrator.store.run_pages import RunPages
from toolfleet.orchestrator.store.run_states import RunStates
from toolfleet.orchestrator.store.run_store import Head, RunStore
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

COUNT: Final = re.compile(rb"\d{1,18}")

LATEST_RUNS: Final = 12
BUDGETS: Final = 20
DEAD_LETTERS: Final = 3


class WorkerStanding(Record):
    """A live worker, and what it does."""

    worker: str
    pool: str
    queues: tuple[str, ...]
    slots: int
    """How many calls it takes at once."""
    busy: int | None
    """How many it holds; None where that cannot be told, as with another broker."""
    tools: int
    started_unix_s: float
    seen_unix_s: float
    """When it has last said that it lives."""
    ailing: tuple[str, ...] = ()
    """Which of its listeners are down."""


class OrchestratorStanding(Record):
    """A live orchestrator."""

    orchestrator_id: str
    model: str
    """Whose runs it takes over; "" for one that takes over none."""
    runs: int
    """Unfinished runs that are its own, at work or at rest."""


class RunLine(Record):
    """A run as a line of a list tells of it."""

    run_id: str
    state: State
    model: str
    tenant: str | None
    title: str
    """What was asked, shortened. Payload: not for everybody who may look."""
    turn: int
    calls: int
    awaiting_approval: int
    started_unix_s: float
    updated_unix_s: float

    @classmethod
    def of(cls, head: Head) -> RunLine:
        """Return the line of a run's head."""
        return cls(**{name: getattr(head, name) for name in cls.model_fields})


class RunsStanding(Record):
    """The stored runs."""

    stored: int
    by_state: Mapping[State, int]
    awaiting_approval: int
    latest: tuple[RunLine, ...]


class DeadLine(Record):
    """A dead letter as a line of a list tells of it."""

    letter_id: str
    buried_unix_s: float
    call_id: str
    tool: str
    reason: str

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLine:
        """Return the line of a letter."""
        return cls(
            letter_id=letter.letter_id,
            buried_unix_s=letter.buried_at.timestamp(),
            call_id=letter.call_id,
            tool=letter.tool,
            reason=letter.reason,
        )


class Failing(Record):
    """What somebody may have to look after."""

    dead_letters: int
    newest_dead: tuple[DeadLine, ...]
    rare: Mapping[str, int]
    """How often each rare thing has happened since the fleet began, such as an envelope that was refused."""
    strangers: tuple[str, ...]
    """Workers with another secret: they would not run our calls."""


class FleetStanding(Record):
    """How a fleet stands at one moment, by the server's clock."""

    at_unix_s: float
    queues: tuple[QueueStanding, ...]
    workers: tuple[WorkerStanding, ...]
    orchestrators: tuple[OrchestratorStanding, ...]
    runs: RunsStanding
    limits: LimitsStanding
    budgets_stored: int
    budgets: tuple[Standing, ...]
    """The first of them, by their tenants' names."""
    failing: Failing
    versions: tuple[VersionsStanding, ...] = ()
    """Of tools that have versions."""


class FleetView:
    """Tells how a fleet stands. Raises StoreUnreachable, at once: nothing waits here for a Redis that is away."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._seal = Seal(settings)
        self._catalog = Catalog(client, settings)
        self._queues = Queues(client, settings)
        self._store = RunStore(client, settings, self._seal)
        self._run_states = RunStates(client, settings.keys)
        self._pages = RunPages(client, settings.keys, self._store)
        self._limits = FleetLimits(client, settings.keys, self._catalog)
        self._budgets = TenantBudgets(client, settings)
        self._letters = DeadLetters(client, settings)
        shares = VersionShares(client, settings.keys, self._seal)
        self._versions = FleetVersions(self._catalog, shares, Trials(client, settings.keys, self._catalog, shares))

    async def standing(self) -> FleetStanding:
        """Return how the fleet stands now."""
        live = await self._catalog.live()
        queues, runs, orchestrators, limits, (stored, budgets), failing = await asyncio.gather(
            self._queues.now(live.ours),
            self._runs(),
            self._orchestrators(),
            self._limits.beside(offered_by(live.ours)),
            self._budgets.some(BUDGETS),
            self._failing(live),
        )
        return FleetStanding(
            at_unix_s=limits.now_ms / 1000,
            queues=tuple(queues.queues),
            workers=_workers(live, queues.held, has_streams=not self._settings.broker_url),
            orchestrators=tuple(orchestrators),
            runs=runs,
            limits=limits,
            budgets_stored=stored,
            budgets=tuple(budgets),
            failing=failing,
            versions=await self._of_versions(live),
        )

    async def _of_versions(self, live: Live) -> tuple[VersionsStanding, ...]:
        versions = versions_by(live.ours)  # of most fleets none, and then nothing is asked
        return await self._versions.beside(offered_by(live.ours), versions) if versions else ()

    async def _runs(self) -> RunsStanding:
        stored = await self._client.zcard(self._settings.keys.runs())
        tally = await self._run_states.tally()
        latest = (await self._pages.page(limit=LATEST_RUNS)).heads
        return RunsStanding(
            stored=stored,
            by_state=tally.by_state,
            awaiting_approval=tally.awaiting_approval,
            latest=tuple(map(RunLine.of, latest)),
        )

    async def _orchestrators(self) -> list[OrchestratorStanding]:
        there = await living(self._client, self._settings)
        pipeline = self._client.pipeline(transaction=False)
        for each in there:
            pipeline.scard(self._settings.keys.owned(each.orchestrator_id))
        runs: list[int] = await pipeline.execute() if there else []
        return [
            OrchestratorStanding(orchestrator_id=each.orchestrator_id, model=each.model, runs=count)
            for each, count in zip(there, runs, strict=True)
        ]

    async def _failing(self, live: Live) -> Failing:
        keys = self._settings.keys
        counted = await cast("Awaitable[Mapping[bytes, bytes]]", self._client.hgetall(keys.counters()))
        dead = await self._client.xlen(keys.dead_letters())
        newest = await self._letters.latest(DEAD_LETTERS) if dead else []
        return Failing(
            dead_letters=dead,
            newest_dead=tuple(map(DeadLine.of, newest)),
            rare={text_of(what): int(count) for what, count in sorted(counted.items()) if COUNT.fullmatch(count)},
            strangers=tuple(strangers(live.proofs, self._seal)),
        )


def _workers(live: Live, held: Mapping[str, int], *, has_streams: bool) -> tuple[WorkerStanding, ...]:
    return tuple(
        WorkerStanding(
            worker=each.worker,
            pool=each.pool,
            queues=each.queues,
            slots=each.concurrency,
            busy=_busy(each, live.ours, held) if has_streams else None,
            tools=len(each.tools),
            started_unix_s=each.started_unix_s,
            seen_unix_s=live.said_ms[each.worker] / 1000,
            ailing=each.ailing,
        )
        for each in live.ours
    )


def _busy(worker: Announcement, workers: Sequence[Announcement], held: Mapping[str, int]) -> int | None:
    """Return how many calls a worker's process holds. Consumers are named by their machine and process number."""
    alike = [each for each in workers if each.pid == worker.pid]
    of_pid = {name: count for name, count in held.items() if name.rsplit("-", 2)[1:2] == [str(worker.pid)]}
    if len(alike) == 1:
        return sum(of_pid.values())
    machine = _machine(worker)
    if sum(_machine(each) == machine for each in alike) > 1:
        return None
    return sum(count for name, count in of_pid.items() if name.rsplit("-", 2)[0] == machine)


def _machine(worker: Announcement) -> str:
    return worker.worker.rpartition("@")[2]
