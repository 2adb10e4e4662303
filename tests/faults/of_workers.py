"""Workers that are killed, frozen, or tell the wrong time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from tests.faults.arena import Arena, fault, until
from tests.faults.load import IN_PROCESSES, MOSTLY_QUICK
from toolfleet.calls import FailureKind
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.points import Point
from toolfleet.testing import clock_offset, stop_at

EXPIRED = FailureKind.EXPIRED.value


async def killed_at(arena: Arena, point: Point, times: int) -> None:
    """A second worker joins in and dies at the point, while calls come."""
    for _ in range(times):
        doomed = arena.fleet.kill_worker("io", at=point, nth=arena.rng.randint(1, 10))
        await arena.ready()
        async with arena.load.running(conversations=4):
            arena.injected(await ended(doomed))


@fault("a worker is killed with calls that it has not looked at")
async def worker_killed_before_claim(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.RECEIVED, times)


@fault("a worker is killed between the claim and the tool")
async def worker_killed_after_claim(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.CLAIMED, times)


@fault("a worker is killed between the effect and its result")
async def worker_killed_after_effect(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.EFFECT_DONE, times)


@fault("a worker is killed just after a result was stored")
async def worker_killed_after_settle(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.SETTLED, times)


@fault("a worker and its companion are killed together, as when a machine is lost")
async def machine_lost(arena: Arena, times: int) -> None:
    for _ in range(times):
        await arena.replenish(io=2)
        lost = arena.fleet.alive("io")[-1]
        async with arena.load.running(conversations=4):
            await asyncio.sleep(0.2 + 0.3 * arena.rng.random())
            await asyncio.to_thread(arena.fleet.lose_machine, lost)
            arena.injected()


@fault("a process of a prefork worker is killed at a random moment", short=10, long=40)
async def prefork_child_killed(arena: Arena, times: int) -> None:
    [worker] = arena.fleet.alive("cpu")
    async with arena.load.running(conversations=2, calls=4, tools=IN_PROCESSES):
        for _ in range(times):
            # Not so often that one call loses every process it gets: that is another fault.
            await asyncio.sleep(0.8 + 0.4 * arena.rng.random())
            if await asyncio.to_thread(arena.fleet.kill_child, worker, arena.rng.choice):
                arena.injected()


@fault("a worker is frozen (SIGSTOP) for longer than its lease, then goes on; its results come too late")
async def worker_frozen_beyond_its_lease(arena: Arena, times: int) -> None:
    for _ in range(times):
        frozen = arena.fleet.start_fated("io", stop_at(Point.EFFECT_DONE, arena.rng.randint(1, 5)))
        await arena.ready()
        async with asyncio.TaskGroup() as group:
            for ask in [arena.load.ask("again", seconds=2.0) for _ in range(12)]:
                group.create_task(arena.load.perform([ask]))
                await asyncio.sleep(0.02)  # else one worker would take them all
            async with arena.load.running(conversations=4):
                await asyncio.to_thread(arena.fleet.wait_until_frozen, frozen)
                arena.injected()
            # Each quick call has its answer, so another worker has taken over, and is at the slow ones right now.
            arena.fleet.thaw(frozen)
        arena.expect(await said(frozen, "late_result_dropped"), "no late result was refused")
        arena.expect(frozen.is_running, "the worker did not survive being frozen")
        await asyncio.to_thread(arena.fleet.kill, frozen)


async def said(worker: WorkerProcess, word: str) -> bool:
    """Whether a worker says something in its log soon."""
    with suppress(TimeoutError):
        return bool(await until(lambda: word in worker.log_path.read_text(errors="replace"), within_s=5))
    return False


async def ended(worker: WorkerProcess) -> float:
    """When a worker's process has ended."""
    return await until(lambda: not worker.is_running)


async def with_a_wrong_clock(arena: Arena, offset_s: float, times: int) -> None:
    for _ in range(times):
        wrong = arena.fleet.start_fated("io", clock_offset(offset_s))
        await arena.ready()
        arena.injected()
        for _ in range(5):
            await arena.load.perform(arena.load.mixture(10))
            # A deadline nearer than the clock is wrong: whatever the worker makes of it, there is one truthful answer.
            soon = arena.load.mixture(10)
            for ask in soon:
                ask.expects |= {EXPIRED}
            await arena.load.perform(soon, timeout_s=60)
        await asyncio.to_thread(arena.fleet.kill, wrong)


@fault("a worker's clock is five minutes ahead", short=1, long=5)
async def clock_ahead(arena: Arena, times: int) -> None:
    await with_a_wrong_clock(arena, 300, times)


@fault("a worker's clock is five minutes behind", short=1, long=5)
async def clock_behind(arena: Arena, times: int) -> None:
    await with_a_wrong_clock(arena, -300, times)


@fault("a random worker is killed every two seconds, while calls run all the time", once=2, short=15, long=60)
async def chaos_of_workers(arena: Arena, times: int) -> None:
    await arena.replenish(io=3, cpu=2)
    async with arena.load.running(conversations=24, calls=5, seconds=0.2, tools=MOSTLY_QUICK, pause_s=0.1):
        for _ in range(times):
            due = time.monotonic() + 2.0
            pool = arena.rng.choice(["io", "io", "io", "cpu"])
            victims = arena.fleet.alive(pool)
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(victims))
            arena.injected()
            await asyncio.to_thread(arena.fleet.start_worker, pool)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.to_thread(arena.fleet.wait_until_ready)
