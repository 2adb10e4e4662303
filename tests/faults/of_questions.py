"""Tools that ask people, or sleep, while workers, orchestrators, the server and those who answer are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from tests.faults.answering import answer_all
from tests.faults.arena import ROOT, Arena, fault, until
from tests.faults.judge import RETURNED, Ask, entries_of
from tests.faults.load import ASKING, SLEEPING
from tests.faults.of_orchestrators import conversations
from tests.faults.of_workers import ended
from tests.faults.steered import STAND
from tests.faults.steered_tools import answered
from toolfleet.orchestrator import Orchestrator
from toolfleet.points import Point
from toolfleet.testing import kill_at

PEOPLE = ("ann", "bob")


@asynccontextmanager
async def people(arena: Arena) -> AsyncIterator[None]:
    """Two people who answer whatever is asked, each otherwise and both at once. Judged: one answer counts, for all."""
    taken: dict[str, list[str]] = {}
    async with asyncio.TaskGroup() as group:
        answering = [group.create_task(_answer(arena, person, taken)) for person in PEOPLE]
        try:
            yield
        finally:
            for task in answering:
                task.cancel()
    arena.notes += several_answers(arena.load.asks, entries_of(arena.ledger), taken)


def several_answers(asks: Iterable[Ask], entries: Collection[str], taken: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with the answers: `taken` has those that people were told count, by nonce."""
    words: dict[str, set[str]] = {}
    for mark in entries:
        if mark.startswith(answered("", "").rstrip(":")):
            _, nonce, word = mark.split(":")
            words.setdefault(nonce, set()).add(word)
    wrong = []
    for ask in asks:
        heard, counted = words.get(ask.nonce, set()), taken.get(ask.nonce, ())
        said = {ask.content.removeprefix(f"{ask.nonce} ")} if ask.outcome == RETURNED and ask.tool in ASKING else heard
        if len(heard) > 1:
            wrong.append(f"{ask.tool} went on with several answers")
        if len(counted) > 1:
            wrong.append("two people were told that their answer to one question counts")
        if counted and not heard <= set(counted):
            wrong.append(f"{ask.tool} went on with another answer than the one that counts")
        if heard != said:
            wrong.append(f"{ask.tool} returned another answer than it went on with")
    return wrong


async def _answer(arena: Arena, person: str, taken: dict[str, list[str]]) -> None:
    async with Orchestrator(settings=arena.settings) as orchestrator:
        async for nonce, word in answer_all(orchestrator, person):
            taken.setdefault(nonce, []).append(word)


def asking(arena: Arena, calls: int = 3):
    """Conversations whose tools ask."""
    return arena.load.running(conversations=3, calls=calls, tools=ASKING, pause_s=0.1)


@fault(
    "a worker is killed as its tool has asked, as its call leaves to wait elsewhere, or while calls wait in it",
    short=6,
    long=30,
    stand=STAND,
)
async def asking_worker_killed(arena: Arena, times: int) -> None:
    async with people(arena):
        for number in range(times):
            at = (Point.QUESTION_STORED, Point.LEAVING, None)[(arena.turn + number) % 3]
            if at is not None:
                doomed = arena.fleet.kill_worker("io", at=at, nth=arena.rng.randint(1, 4))
                await arena.ready()
            async with asking(arena):
                if at is not None:
                    arena.injected(await ended(doomed))
                    continue
                await asyncio.sleep(0.3 + 0.3 * arena.rng.random())
                await asyncio.to_thread(arena.fleet.kill_worker, "io")
                arena.injected()
                await arena.replenish(io=1)


@fault("an orchestrator is killed whose tools ask", long=10, stand=STAND)
async def asking_orchestrator_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        async with people(arena), conversations(arena) as runs:
            plans = runs.plan(4, tools=ASKING)
            point = (Point.PARKED, Point.DISPATCHED, Point.GATHERED)[(arena.turn + number) % 3]
            patience = {"patience_s": 0.0} if point is Point.PARKED else {}
            holder = await runs.hold(plans, kill_at(point, 1, arena.rng.choice(plans).run), **patience)
            arena.injected(await holder.ended())


@fault("whoever answers is killed as an answer is stored, and others answer the same questions", long=20, stand=STAND)
async def answerer_killed(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with people(arena), asking(arena):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.faults.answering"),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                env={
                    **os.environ,
                    **arena.settings.as_environment(),
                    **kill_at(Point.ANSWER_STORED, arena.rng.randint(1, 3)),
                },
            )
            try:
                async with asyncio.timeout(60):
                    status = await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
            arena.expect(status == -signal.SIGKILL, f"whoever answers ended with {status}")
            arena.injected()


@fault("the server is killed and started again as tools ask and people answer", short=6, long=30, stand=STAND)
async def asking_server_killed(arena: Arena, times: int) -> None:
    async with people(arena), asking(arena):
        await _restarts(arena, times)


async def _restarts(arena: Arena, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0.3 + 0.5 * arena.rng.random())
        async with arena.injecting():
            await asyncio.to_thread(arena.server.restart, signal.SIGKILL, down_s=0.5 * arena.rng.random())
        await arena.recovered()


# --- tools that sleep ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def sleeping(arena: Arena) -> AsyncIterator[None]:
    """Calls that sleep, as long as this goes on. Judged: none wakes early."""
    async with arena.load.running(conversations=4, calls=4, seconds=0.8, tools=SLEEPING, pause_s=0.2):
        yield
    for ask in arena.load.asks:
        if ask.outcome == RETURNED:
            seconds = float(ask.arguments.rpartition(":")[2].strip(" }"))
            slept_s = float(ask.content.rpartition(" ")[2])
            arena.expect(slept_s > seconds - 0.01, f"{ask.tool} slept for {slept_s} s, not {seconds}")


@fault("a worker is killed as its call leaves to sleep, or the only one as calls sleep", long=20, stand=STAND)
async def sleeping_worker_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        if (arena.turn + number) % 2:
            async with sleeping(arena):
                await until(lambda: len(arena.load.asks) > 4)
                await asyncio.sleep(arena.rng.random())
                await asyncio.to_thread(arena.fleet.kill_worker, "io")
                arena.injected()
                await arena.replenish(io=1)
        else:
            doomed = arena.fleet.kill_worker("io", at=Point.LEAVING, nth=arena.rng.randint(1, 4))
            await arena.ready()
            async with sleeping(arena):
                arena.injected(await ended(doomed))


@fault("the server is killed and started again while calls sleep", short=6, long=30, stand=STAND)
async def sleeping_server_killed(arena: Arena, times: int) -> None:
    async with sleeping(arena):
        await _restarts(arena, times)
