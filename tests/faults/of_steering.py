"""Runs that are told things, interrupted and forked, with calls in the background or that yield: who works is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tests.faults.arena import Arena, fault, until
from tests.faults.conversing import Plan
from tests.faults.judge import RETURNED, Ask, entries_of
from tests.faults.load import AGAIN_ENDS, MIXED, ONCE_ENDS, REPEATABLE, YIELDING
from tests.faults.of_orchestrators import ENDED_WITHIN_S, Holder, conversations, note_run, tell
from tests.faults.of_workers import ended
from tests.faults.steered import STAND
from tests.faults.steered_tools import PIECES
from toolfleet.calls import FailureKind
from toolfleet.errors import StoreUnreachable
from toolfleet.messages import AssistantMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.value import Run
from toolfleet.points import Point
from toolfleet.testing import kill_at

CANCELLED = FailureKind.CANCELLED.value
UNSTARTED = ("before it started", "not called")
"""How it is said of a call that it has had no effect."""


def said_to(run: Run) -> list[str]:
    return [str(each.content) for each in run.messages[1:] if isinstance(each, UserMessage)]


async def all_begun(holder: Holder, plans: Sequence[Plan]) -> None:
    await until(lambda: len(holder.begun) == len(plans))


async def restart(arena: Arena) -> None:
    async with arena.injecting():
        await asyncio.to_thread(arena.server.restart, signal.SIGKILL, down_s=0.5 * arena.rng.random())


# --- what people say -------------------------------------------------------------------------------------------------


@fault("the server is killed while people say things to runs, each of them twice under one key", long=10, stand=STAND)
async def told_server_killed(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with conversations(arena) as runs:
            plans = runs.plan(4, seconds=0.4, tools=MIXED)
            await all_begun(await runs.hold(plans), plans)
            async with asyncio.TaskGroup() as group:
                tellings = [group.create_task(tell(arena.load.orchestrator, plan.run)) for plan in plans]
                await asyncio.sleep(0.3 + 0.5 * arena.rng.random())
                await restart(arena)
        for plan, telling in zip(plans, tellings, strict=True):
            if taken := telling.result():
                heard = said_to(await arena.load.orchestrator.get(plan.run))
                arena.expect(sorted(heard) == sorted(taken), f"{taken} was taken, and {heard} is in the conversation")


@fault("an orchestrator is killed while people interrupt its runs", short=3, long=15, stand=STAND)
async def interrupted_orchestrator_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        point = (Point.DISPATCHED, Point.GATHERED, Point.REPLY_STORED)[(arena.turn + number) % 3]
        async with conversations(arena) as runs:
            plans = runs.plan(4, seconds=0.6, tools=MIXED)
            holder = await runs.hold(plans, kill_at(point, 1, arena.rng.choice(plans).run))
            async with asyncio.TaskGroup() as group:
                interruptions = [group.create_task(_interrupt(arena, plan.run)) for plan in plans]
                arena.injected(await holder.ended())
        entries = entries_of(arena.ledger)
        for plan, interruption in zip(plans, interruptions, strict=True):
            heard = said_to(await arena.load.orchestrator.get(plan.run)) if interruption.result() else []
            arena.expect(
                heard == ["stop"] * interruption.result(), f"an interruption is in the conversation as {heard}"
            )
        for ask in arena.load.asks:
            ask.expects |= {CANCELLED}
            is_unstarted = ask.outcome == CANCELLED and (
                "before it started" in ask.content or "not called" in ask.content
            )
            arena.expect(not (is_unstarted and entries.get(ask.nonce)), f"{ask.tool} ran and was said to have not")


async def _interrupt(arena: Arena, run_id: str) -> bool:
    """Interrupt a run as soon as it is there, a moment later; whether it was at work."""
    pause_s = 0.5 * arena.rng.random()
    async with asyncio.timeout(ENDED_WITHIN_S):
        while True:
            with suppress(RunNotFound):
                await arena.load.orchestrator.get(run_id)
                break
            await asyncio.sleep(0.02)
    await asyncio.sleep(pause_s)
    try:
        for _ in range(2):
            await arena.load.orchestrator.say(run_id, "stop", interrupt=True, idempotency_key="stop")
    except RunNotOpen:
        return False
    return True


# --- calls that go on ------------------------------------------------------------------------------------------------


@fault("an orchestrator is killed whose model has asked for calls in the background", short=3, long=10, stand=STAND)
async def background_orchestrator_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        point = (Point.DISPATCHED, Point.GATHERED, Point.REPLY_STORED)[(arena.turn + number) % 3]
        async with conversations(arena) as runs:
            plans = runs.plan(5, seconds=0.8, tools=("in_background",), background=True)
            turn = arena.rng.randint(1, 2)
            holder = await runs.hold(plans, kill_at(point, turn, arena.rng.choice(plans).run))
            arena.injected(await holder.ended())
        for plan in plans:
            with suppress(RunNotFound):
                _note_late(await arena.load.orchestrator.get(plan.run), arena.load.asks)


def _note_late(run: Run, asks: list[Ask]) -> None:
    """The message of a call is the one with its result, which comes behind that with its handle."""
    late = [
        str(json.loads(str(message.content)).get("result"))
        for message in run.messages
        if isinstance(message, ToolMessage) and message.name == "task_result"
    ]
    for ask in asks:
        if ask.outcome == RETURNED and ask.nonce.startswith(f"{run.run_id}-"):
            said = [each for each in late if each == ask.nonce]
            ask.message = said[0] if len(said) == 1 else f"{len(said)} late results for one call"


@fault("a worker is killed while its tools yield", short=4, long=20, stand=STAND)
async def yielding_worker_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        async with arena.load.running(conversations=4, calls=3, seconds=0.6, tools=YIELDING, pause_s=0.1):
            if (arena.turn + number) % 2:
                doomed = arena.fleet.kill_worker("io", at=Point.EFFECT_DONE, nth=arena.rng.randint(1, 4))
                await arena.ready()
                arena.injected(await ended(doomed))
                continue
            await asyncio.sleep(0.4 + 0.4 * arena.rng.random())
            await asyncio.to_thread(arena.fleet.kill_worker, "io")
            arena.injected()
            await arena.replenish(io=1)
    for ask in arena.load.asks:
        if ask.outcome == RETURNED:
            attempts = {piece.partition(".")[0] for piece in ask.content.split()[1:]}
            whole = [f"{attempt}.{number}" for attempt in attempts for number in range(PIECES)]
            arena.expect(ask.content.split()[1:] == whole, f"{ask.tool} returned {ask.content[-60:]!r}")


# --- forks -----------------------------------------------------------------------------------------------------------


@fault("the server is killed while runs are forked, each twice under one id", short=3, long=10, stand=STAND)
async def forking_server_killed(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with conversations(arena) as runs:
            plans = runs.plan(4, turns=2, calls=2, tools=MIXED)
            await all_begun(await runs.hold(plans), plans)
            async with asyncio.timeout(ENDED_WITHIN_S):
                first = [await arena.load.orchestrator.wait(plan.run) for plan in plans]
            async with asyncio.TaskGroup() as group:
                for run, plan in zip(first, plans, strict=True):
                    for _ in range(2):
                        group.create_task(_fork(arena, run, plan))
                await asyncio.sleep(0.1 * arena.rng.random())
                await restart(arena)
            for run, plan in zip(first, plans, strict=True):
                await _judge_fork(arena, run, plan)


def _forked(plan: Plan) -> Plan:
    return replace(plan, run=f"{plan.run}f")


async def _fork(arena: Arena, run: Run, plan: Plan) -> None:
    """Fork a run behind its first turn, whose model goes on as in a conversation of another name."""
    forked = _forked(plan)
    behind = next(at for at, each in enumerate(run.messages[2:], 2) if isinstance(each, AssistantMessage))
    prefix = [UserMessage(content=forked.question), *run.messages[1:behind]]
    fork = partial(arena.load.orchestrator.fork, run.run_id, at=1, messages=prefix, run_id=forked.run)
    async with asyncio.timeout(ENDED_WITHIN_S):
        while True:
            with suppress(StoreUnreachable):
                await fork()
                return


async def _judge_fork(arena: Arena, run: Run, plan: Plan) -> None:
    forked = _forked(plan)
    asks = [
        Ask(
            nonce,
            tool,
            arguments,
            once=tool not in REPEATABLE,
            expects=AGAIN_ENDS if tool in REPEATABLE else ONCE_ENDS,
            sent_s=time.monotonic(),
        )
        for nonce, tool, arguments in forked.asks(1)
    ]
    arena.load.asks += asks
    async with asyncio.timeout(ENDED_WITHIN_S):
        fork = await arena.load.orchestrator.wait(forked.run)
    note_run(fork, asks)
    made = sorted(json.loads(call.arguments)["nonce"] for call in fork.calls)
    arena.expect(made == sorted(ask.nonce for ask in asks), f"a fork has made the calls {made}")
    arena.expect(await arena.load.orchestrator.get(run.run_id) == run, "a run that was forked is not as it was")
