"""Limits of the fleet while those who hold places are lost, the server is, or one of two orchestrators.

A ledger that the tools write judges: never more at once than have places, and no second with more starts than the rate.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.faults.arena import Arena, fault, until
from tests.faults.limits_ledger import (
    BURST,
    PLACES,
    PLACES_IN_PROCESSES,
    RATE_PER_S,
    lines_of,
    most_at_once,
    most_in_a_second,
)
from tests.faults.load import LIMITED, Load
from tests.faults.of_orchestrators import conversations
from toolfleet.orchestrator import Orchestrator

LAIN_S: Final = 0.25
"""For so long a call may lie in its queue with the start that it took: after a pause, those begin beside new ones."""

AT_ONCE: Final = {"narrow": PLACES, "narrow_in_process": PLACES_IN_PROCESSES}


@asynccontextmanager
async def within_limits(arena: Arena) -> AsyncIterator[None]:
    """Judge by the ledger what was begun meanwhile."""
    before = len(lines_of(arena.ledger))
    yield
    lines = lines_of(arena.ledger)[before:]
    for tool, places in AT_ONCE.items():
        most = most_at_once(lines, tool)
        arena.expect(most <= places, f"{most} calls of {tool} ran at once, which has {places} places")
        arena.expect(most == places, f"{tool} has {places} places, and never were more than {most} of them taken")
    most = most_in_a_second(lines, "rated")
    allowed = RATE_PER_S + BURST + int(RATE_PER_S * LAIN_S)
    arena.expect(most <= allowed, f"{most} calls of a tool with {RATE_PER_S}/s began within a second")


@asynccontextmanager
async def two_loads(arena: Arena) -> AsyncIterator[None]:
    """Calls of limited tools, from two orchestrators."""
    async with Orchestrator(settings=arena.settings) as second:
        other = Load(second, arena.rng)
        load = {"conversations": 3, "calls": 3, "seconds": 0.2, "tools": LIMITED}
        async with arena.load.running(**load), other.running(**load):
            yield
    arena.load.asks += other.asks


@fault("a worker is killed whose calls hold places and starts of limits", short=4, long=20)
async def limits_holder_killed(arena: Arena, times: int) -> None:
    await arena.replenish(io=2, cpu=2)
    async with within_limits(arena), two_loads(arena):
        for number in range(times):
            await asyncio.sleep(0.5 + arena.rng.random())
            pool = ("io", "cpu")[number % 2]
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(arena.fleet.alive(pool)))
            arena.injected()
            await arena.replenish(io=2, cpu=2)
            await arena.recovered()


@fault("a worker and its companion are killed whose calls hold places and starts of limits", short=2, long=10)
async def limits_machine_lost(arena: Arena, times: int) -> None:
    async with within_limits(arena), two_loads(arena):
        for number in range(times):
            await arena.replenish(io=2, cpu=2)
            await asyncio.sleep(0.5 + arena.rng.random())
            pool = ("cpu", "io")[number % 2]
            await asyncio.to_thread(arena.fleet.lose_machine, arena.rng.choice(arena.fleet.alive(pool)))
            arena.injected()
            await arena.recovered()


@fault("the server is killed and started again while calls hold places and wait in the room", short=4, long=20)
async def limits_server_killed(arena: Arena, times: int) -> None:
    async with within_limits(arena), two_loads(arena):
        for _ in range(times):
            await asyncio.sleep(0.5 + arena.rng.random())
            async with arena.injecting():
                await asyncio.to_thread(arena.server.restart, signal.SIGKILL, down_s=0.5 * arena.rng.random())
            await arena.recovered()


@fault("two orchestrators send calls of limited tools, and one of them is killed", short=2, long=10)
async def limits_orchestrator_killed(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with within_limits(arena), conversations(arena) as runs:
            first, _ = [await runs.hold(runs.plan(4, turns=2, calls=6, seconds=0.2, tools=LIMITED)) for _ in range(2)]
            await until(lambda first=first: first.begun)
            await asyncio.sleep(0.5 + arena.rng.random())
            arena.injected(await first.kill())
