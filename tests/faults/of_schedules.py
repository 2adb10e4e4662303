"""Schedules that tick each second while orchestrators are killed at every step of a tick, and the server is."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.arena import Arena, fault
from tests.faults.conversing import MODEL, Plan
from tests.faults.judge import IN_DOUBT, RETURNED, Ask
from tests.faults.of_orchestrators import ENDED_WITHIN_S, Conversations, conversations
from tests.faults.steered import STAND
from toolfleet.calls import call_id
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.schedules.records import Schedule
from toolfleet.points import Point
from toolfleet.testing import kill_at

EACH_SECOND = "* * * * * *"
STEPS = (Point.SCHEDULE_TAKEN, Point.TICK_DECIDED, Point.TICK_BEGUN)


@asynccontextmanager
async def ticking(arena: Arena) -> AsyncIterator[Conversations]:
    """A schedule, until this is left. Judged: each tick has begun one run, without a gap, and that has one effect."""
    async with conversations(arena) as runs:
        schedules = arena.load.orchestrator.schedules
        question = Plan("tick", turns=1, calls=1, tools=("tick",), seconds=0.05).question
        made = await schedules.add(EACH_SECOND, question, model=MODEL, missed="all")
        yield runs
        # One more tick, so that what was held up has begun.
        seen = await schedules.get(made.schedule_id)
        async with asyncio.timeout(ENDED_WITHIN_S):
            while (now := await schedules.get(made.schedule_id)).decided_unix_s <= seen.decided_unix_s or now.owed:
                await asyncio.sleep(0.05)
        await schedules.pause(made.schedule_id)
        await _judge(arena, await schedules.get(made.schedule_id))
        await schedules.remove(made.schedule_id)


async def _judge(arena: Arena, schedule: Schedule) -> None:
    ticks = range(int(schedule.made_unix_s) + 1, int(time.time()) + 1)
    begun = [tick for tick in ticks if await _is_there(arena, schedule.run_of(tick))]
    arena.expect(begun and begun[0] <= ticks[0] + 1, "the first tick began no run")
    for tick in range(begun[0], begun[-1] + 1) if begun else ():
        run_id = schedule.run_of(tick)
        effect = call_id(run_id, 1, 0)
        ask = Ask(effect, "tick", "{}", once=True, expects=frozenset({RETURNED, IN_DOUBT}), call_id=effect)
        arena.load.asks.append(ask)
        if tick not in begun:
            ask.error = "its tick began no run"
            continue
        async with asyncio.timeout(ENDED_WITHIN_S):
            run = await arena.load.orchestrator.wait(run_id)
        result = run.calls[0].result if run.calls else None
        if result is None or isinstance(result, str):
            ask.error = f"the run of its tick ended as {run.state}: {run.reason}"
            continue
        ask.answer(result, time.monotonic())


async def _is_there(arena: Arena, run_id: str) -> bool:
    try:
        await arena.load.orchestrator.get(run_id)
    except RunNotFound:
        return False
    return True


@fault(
    "an orchestrator is killed as it takes a tick, has decided it, or has begun its run",
    short=6,
    long=30,
    stand=STAND,
)
async def schedules_orchestrator_killed(arena: Arena, times: int) -> None:
    async with ticking(arena) as runs:
        steps = [STEPS[(arena.turn + number) % len(STEPS)] for number in range(times)]
        for at in range(0, times, len(STEPS)):
            # All of a round together: each takes a second until it is there, and ticks come once a second.
            for doomed in [await runs.hold([], kill_at(step)) for step in steps[at : at + len(STEPS)]]:
                arena.injected(await doomed.ended())


@fault("the server is killed and started again while a schedule ticks", short=6, long=30, stand=STAND)
async def schedules_server_killed(arena: Arena, times: int) -> None:
    async with ticking(arena):
        for _ in range(times):
            # Around the beginning of a second, where ticks are taken.
            await asyncio.sleep(1 - time.time() % 1 + arena.rng.uniform(-0.1, 0.6))
            async with arena.injecting():
                await asyncio.to_thread(arena.server.restart, signal.SIGKILL, down_s=arena.rng.random())
