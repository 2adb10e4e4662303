"""Versions of tools, and a share of new runs for one, while workers and orchestrators are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.faults.arena import Arena, fault, until
from tests.faults.judge import entries_of
from tests.faults.load import VERSIONED
from tests.faults.of_orchestrators import conversations
from tests.faults.of_steering import all_begun
from tests.faults.steered import STAND
from tests.faults.steered_tools import VERSION_VARIABLE, ran_as
from toolfleet.calls import FailureKind
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.points import Point
from toolfleet.testing import kill_at

TAKEN_BACK_WITHIN_S = 60.0


def of_version(version: int) -> Mapping[str, str]:
    return {VERSION_VARIABLE: str(version)}


async def start(arena: Arena, version: int) -> WorkerProcess:
    """A worker that serves a version; it has announced it."""
    worker = arena.fleet.start_worker("io", environment=of_version(version))
    await arena.ready()
    return worker


async def live(arena: Arena) -> set[int]:
    """The versions that an orchestrator sees."""
    await arena.load.orchestrator.catalog.offered()
    return set(arena.load.orchestrator.catalog.versions.get(VERSIONED[0], ()))


async def judge_versions(arena: Arena, run_ids: list[str]) -> list[int]:
    """Each call has run in the version that its run began with, and in no other; the versions of the runs."""
    entries, versions = entries_of(arena.ledger), []
    for run_id in run_ids:
        try:
            run = await arena.load.orchestrator.get(run_id)
        except RunNotFound:
            continue
        version = run.versions.get(VERSIONED[0], 0)
        versions.append(version)
        for call in run.calls:
            nonce = f"{run_id}-{call.turn - 1}-{call.call_id.rpartition('.')[2]}"
            other = [mark for mark in entries if mark.startswith(ran_as(nonce, "")) and mark != ran_as(nonce, version)]
            arena.expect(not other, f"a call of a run of version {version} has run as {other}")
    return versions


@fault(
    "a worker of version 1 is killed with calls of runs that began with it, another one comes, and version 2 is there",
    short=3,
    long=15,
    stand=STAND,
)
async def versions_worker_killed(arena: Arena, times: int) -> None:
    [oldest] = arena.fleet.alive("io")
    newer: WorkerProcess | None = None
    for _ in range(times):
        async with conversations(arena) as runs:
            first = runs.plan(4, turns=3, seconds=0.4, tools=VERSIONED)
            if newer is None:
                holder = await runs.hold(first)
                await until(lambda holder=holder, first=first: len(holder.begun) == len(first))
                newer = await start(arena, 2)
            successor = await start(arena, 1)
            second = runs.plan(4, turns=2, seconds=0.4, tools=VERSIONED)
            async with asyncio.timeout(TAKEN_BACK_WITHIN_S):
                while await live(arena) != {1, 2}:
                    await asyncio.sleep(0.05)
            later = await runs.hold(second)
            await until(lambda later=later: later.begun)
            await asyncio.sleep(0.3 * arena.rng.random())
            await asyncio.to_thread(arena.fleet.kill, oldest)
            arena.injected()
            oldest = successor
        begun = await judge_versions(arena, [plan.run for plan in first])
        arena.expect(set(begun) <= {1}, f"runs that began with version 1 have {begun}")
        await judge_versions(arena, [plan.run for plan in second])
    await asyncio.to_thread(arena.fleet.kill, newer)


@fault(
    "orchestrators are killed while a version fails that half of the new runs try: it is taken back",
    short=2,
    long=10,
    stand=STAND,
)
async def share_orchestrator_killed(arena: Arena, times: int) -> None:
    versions = arena.load.orchestrator.versions
    broken = await start(arena, 2)
    async with asyncio.timeout(TAKEN_BACK_WITHIN_S):
        while await live(arena) != {1, 2}:
            await asyncio.sleep(0.05)
    for _ in range(times):
        await versions.share("shaky", 2, 0.5)
        async with conversations(arena) as runs:
            doomed = await runs.hold(runs.plan(8, tools=("shaky",)), kill_at(Point.GATHERED, arena.rng.randint(2, 8)))
            await runs.hold(runs.plan(8, tools=("shaky",)))
            arena.injected(await doomed.ended())
            async with asyncio.timeout(TAKEN_BACK_WITHIN_S):
                while await _share(arena):
                    await asyncio.sleep(0.1)
            after = runs.plan(4, turns=1, tools=("shaky",))
            await all_begun(await runs.hold(after), after)
        for ask in arena.load.asks:
            ask.expects |= {FailureKind.ERROR.value}
        chosen = [(await arena.load.orchestrator.get(plan.run)).versions.get("shaky") for plan in after]
        arena.expect(set(chosen) <= {1}, f"runs after a version was taken back have {chosen}")
    await versions.settle("shaky")
    await asyncio.to_thread(arena.fleet.kill, broken)


async def _share(arena: Arena) -> float:
    """The share of new runs that tries the broken version."""
    [standing] = [each for each in await arena.load.orchestrator.versions.list() if each.tool == "shaky"]
    return standing.said.share if standing.said else 0.0
