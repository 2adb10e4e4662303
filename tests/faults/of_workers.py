"""Workers that are killed, frozen, or tell the wrong time."""

from __future__ import annotations

import asyncio
import time

from tests.faults.arena import Arena, fault, until
from tests.faults.load import IN_PROCESSES
from toolfleet.calls import FailureKind
from toolfleet.points import Point
from toolfleet.testing import clock_offset, stop_at

EXPIRED = FailureKind.EXPIRED.value


async def killed_at(arena: Arena, point: Point, times: int) -> None:
    """A second worker joins in and dies at the point, while calls come."""
    for _ in range(times):
        doomed = arena.fleet.kill_worker("io", at=point, nth=arena.rng.randint(1, 10))
        await arena.ready()
        async with arena.load.running(conversations=4):
            arena.injected(await until(lambda: not doomed.is_running))


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
            await asyncio.sleep(0.3 + 0.3 * arena.rng.random())
            if await asyncio.to_thread(arena.fleet.kill_child, worker):
                arena.injected()


@fault("a worker is frozen (SIGSTOP) after the effect, for longer than its lease; its result comes too late")
async def worker_frozen_beyond_its_lease(arena: Arena, times: int) -> None:
    for _ in range(times):
        frozen = arena.fleet.start_fated("io", stop_at(Point.EFFECT_DONE, arena.rng.randint(1, 5)))
        await arena.ready()
        async with arena.load.running(conversations=4):
            await asyncio.to_thread(arena.fleet.wait_until_frozen, frozen)
            arena.injected()
        # Every answer is there, so another worker has taken over all that the frozen one holds.
        arena.fleet.thaw(frozen)
        await until(lambda: "late_result_dropped" in frozen.log_path.read_text(errors="replace"), within_s=20)
        arena.expect(frozen.is_running, "the worker did not survive being frozen")
        await asyncio.to_thread(arena.fleet.kill, frozen)


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
    kinds = ("once", "again", "once", "again", "once_in_process", "again_in_process")
    await arena.replenish(io=3, cpu=1)
    async with arena.load.running(conversations=24, calls=5, seconds=0.2, tools=kinds, pause_s=0.1):
        for _ in range(times):
            due = time.monotonic() + 2.0
            pool = arena.rng.choice(["io", "io", "io", "cpu"])
            victims = arena.fleet.alive(pool)
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(victims))
            arena.injected()
            await asyncio.to_thread(arena.fleet.start_worker, pool)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.to_thread(arena.fleet.wait_until_ready)
