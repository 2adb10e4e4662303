"""Orchestrators that are killed, frozen, or meet over one run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psutil

from tests.faults.arena import HERE, LEASE_S, Arena, Form, fault, until
from tests.faults.conversing import Plan, planned_model
from tests.faults.fault_tools import LEDGER
from tests.faults.judge import Ask, Injection, entries_of
from tests.faults.load import AGAIN_ENDS, IN_PROCESSES, MIXED, MOSTLY_QUICK, ONCE_ENDS, REPEATABLE
from toolfleet.connections import connect_async
from toolfleet.errors import StoreUnreachable, ToolfleetError
from toolfleet.messages import ToolMessage, UserMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.points import Point
from toolfleet.testing import kill_at, stop_at

ROOT = HERE.parent.parent
ENDED_WITHIN_S = 120.0


class Holder:
    """A process with an orchestrator that holds conversations."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.begun: set[str] = set()
        self._listening = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> float:
        """When it has ended, and all it said was heard."""
        await self._process.wait()
        now = time.monotonic()
        await self._listening
        return now

    async def kill(self) -> float:
        """Kill -9; a second time, nothing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self.ended()

    async def _listen(self) -> None:
        assert self._process.stdout
        while line := (await self._process.stdout.readline()).decode().strip():
            self.begun.add(line)


class Conversations:
    """The runs of one fault: what was planned, who holds them, and what came of them."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._numbers = 0
        self._mark = f"{arena.rng.getrandbits(32):08x}"
        self.plans: dict[str, Plan] = {}
        self.holders: list[Holder] = []

    def plan(
        self,
        count: int,
        *,
        turns: int = 2,
        calls: int = 4,
        seconds: float = 0.05,
        tools: Sequence[str] = (*MIXED, *IN_PROCESSES),
        background: bool = False,
    ) -> list[Plan]:
        """So many conversations to be held."""
        plans = []
        for _ in range(count):
            run_id = f"r{self._mark}-{self._numbers}"
            self._numbers += 1
            plans.append(Plan(run_id, turns, calls, tools, seconds, background))
        return plans

    async def hold(
        self, plans: Sequence[Plan], *fates: Mapping[str, str], at_once: int = 100, **options: Any
    ) -> Holder:
        """Start a process that holds these conversations."""
        environment = {name: value for fate in fates for name, value in fate.items()}
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.conversing"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={
                **os.environ,
                **self._arena.settings.as_environment(),
                LEDGER: str(self._arena.ledger),
                "PYTHONPATH": path,
                **environment,
            },
        )
        assert process.stdin
        orders = {"questions": [plan.question for plan in plans], "at_once": at_once, "options": options}
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        self.plans |= {plan.run: plan for plan in plans}
        self.holders.append(Holder(process))
        return self.holders[-1]

    async def judge(self) -> None:
        """Wait for the end of every run that was begun, and note what became of its calls."""
        begun = {run_id for holder in self.holders for run_id in holder.begun}
        for run_id in self.plans.keys() - begun:
            # A killed process may have stored a run and not said so; what it did not store was never promised.
            with suppress(RunNotFound):
                await self._arena.load.orchestrator.get(run_id)
                begun.add(run_id)
        async with asyncio.TaskGroup() as group:
            for run_id in begun:
                group.create_task(self._note(self.plans[run_id]))

    async def time_recoveries(self) -> None:
        """For each injection: how long it took until the last run that was under way went on, by its own record."""
        keys, to_unix_s = self._arena.settings.keys, time.time() - time.monotonic()
        async with connect_async(self._arena.settings) as client:
            written = [
                [int(entry.partition(b"-")[0]) / 1000 - to_unix_s for entry, _ in await client.xrange(keys.run(run_id))]
                for run_id in self.plans
            ]
        self._arena.injections[:] = [_timed(injection, written) for injection in self._arena.injections]

    async def _note(self, plan: Plan) -> None:
        asks = [
            Ask(
                nonce=nonce,
                tool=tool,
                arguments=arguments,
                once=tool not in REPEATABLE,
                expects=AGAIN_ENDS if tool in REPEATABLE else ONCE_ENDS,
            )
            for turn in range(plan.turns)
            for nonce, tool, arguments in plan.asks(turn)
        ]
        self._arena.load.asks += asks
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                run = await self._arena.load.orchestrator.wait(plan.run)
        except TimeoutError:
            return  # unfinished
        except ToolfleetError as error:
            for ask in asks:
                ask.error = f"{type(error).__name__}: {error}"
            return
        note_run(run, asks)


def _timed(injection: Injection, written: Sequence[Sequence[float]]) -> Injection:
    under_way = [times for times in written if times and times[0] < injection.at_s < times[-1]]
    went_on = [next(time_s for time_s in times if time_s > injection.at_s) for times in under_way]
    return replace(injection, recovery_s=max(went_on, default=injection.over_s) - injection.over_s)


def note_run(run: Run, asks: Sequence[Ask]) -> None:
    """Copy the answers of a run to the calls that were planned."""
    now = time.monotonic()
    records = {json.loads(call.arguments)["nonce"]: call for call in run.calls}
    messages: dict[str, list[str]] = {}
    for message in run.messages:
        if isinstance(message, ToolMessage):
            messages.setdefault(message.tool_call_id, []).append(message.content)
    for ask in asks:
        record = records.get(ask.nonce)
        if record is None or record.result is None:
            ask.error = f"the run ended as {run.state} without it: {run.reason}"
            continue
        ask.call_id = record.call_id
        ask.answer(record.late_result or record.result, now)
        said = messages.get(record.requested_id, [])
        ask.message = said[0] if len(said) == 1 else f"{len(said)} messages for one call"
    if run.state is not State.DONE:
        for ask in asks:
            ask.error = ask.error or f"the run ended as {run.state}: {run.reason}"


@asynccontextmanager
async def conversations(arena: Arena, survivors: int = 1) -> AsyncIterator[Conversations]:
    """Conversations, with orchestrators in this process that take over what others leave; judged at the end."""
    runs = Conversations(arena)
    async with AsyncExitStack() as stack:
        for _ in range(survivors):
            await stack.enter_async_context(
                Orchestrator(model=planned_model(str(arena.ledger)), settings=arena.settings)
            )
        try:
            yield runs
            await runs.judge()
            await runs.time_recoveries()
        finally:
            for holder in runs.holders:
                await holder.kill()


async def killed_at(
    arena: Arena, point: Point, times: int, *, asked: int = 1, survivors: int = 1, **options: Any
) -> None:
    """An orchestrator with several runs dies at a point of one of them; the model is asked so often for that turn."""
    seconds = 1.0 if options else 0.05
    for _ in range(times):
        async with conversations(arena, survivors) as runs:
            plans = runs.plan(5, seconds=seconds)
            doomed, turn = arena.rng.choice(plans), arena.rng.randrange(2)
            holder = await runs.hold(plans, kill_at(point, turn + 1, doomed.run), **options)
            arena.injected(await holder.ended())
        times_asked = len(entries_of(arena.ledger).get(doomed.asked_for(turn), []))
        arena.expect(times_asked == asked, f"the model was asked {times_asked} times for one reply, not {asked}")


@fault("an orchestrator is killed before it stores the model's reply", long=10)
async def orchestrator_killed_before_the_reply_is_stored(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.REPLY_RECEIVED, times, asked=2)


@fault("an orchestrator is killed just after it stored the model's reply", long=10)
async def orchestrator_killed_after_the_reply_is_stored(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.REPLY_STORED, times)


@fault("an orchestrator is killed between sending calls and noting that", long=10)
async def orchestrator_killed_between_dispatch_and_gather(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.DISPATCHED, times)


@fault("an orchestrator is killed with all results in hand and none stored", long=10)
async def orchestrator_killed_before_the_results_are_stored(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.GATHERED, times)


@fault("an orchestrator is killed while its runs are parked", long=10)
async def orchestrator_killed_while_parked(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.PARKED, times, patience_s=0.2)


@fault("an orchestrator is killed while people say things to its runs, each of them twice under one key", long=10)
async def orchestrator_killed_while_its_runs_are_told_things(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with conversations(arena) as runs:
            plans = runs.plan(5, seconds=0.3)
            holder = await runs.hold(plans, kill_at(Point.GATHERED, 1, arena.rng.choice(plans).run))
            told = await asyncio.gather(*(tell(arena.load.orchestrator, plan.run) for plan in plans))
            arena.injected(await holder.ended())
        for plan, taken in zip(plans, told, strict=True):
            if taken:
                run = await arena.load.orchestrator.get(plan.run)
                heard = [str(each.content) for each in run.messages[1:] if isinstance(each, UserMessage)]
                arena.expect(sorted(heard) == sorted(taken), f"{taken} was taken, and {heard} is in the conversation")


async def tell(orchestrator: Orchestrator, run_id: str) -> list[str]:
    """Say ten things to a run, twice each; those that were taken. The rest came when it was over, or not there."""
    taken = []
    for number in range(10):
        said = f"{run_id}: {number}"
        for _ in range(2):
            with suppress(RunNotFound, RunNotOpen):
                await _say(orchestrator, run_id, said, str(number))
                taken.append(said)
        await asyncio.sleep(0.1)
    return list(dict.fromkeys(taken))


async def _say(orchestrator: Orchestrator, run_id: str, said: str, key: str) -> None:
    """Say it, again and again while nobody answers: whether it was taken then is not known."""
    async with asyncio.timeout(ENDED_WITHIN_S):
        while True:
            with suppress(StoreUnreachable):
                await orchestrator.say(run_id, said, idempotency_key=key)
                return
            await asyncio.sleep(0.05)


@fault("three orchestrators are there to adopt the runs of a killed one", short=2, long=10)
async def several_adopt_one_run(arena: Arena, times: int) -> None:
    await killed_at(arena, Point.DISPATCHED, times, survivors=3)


@fault(
    "an orchestrator is frozen (SIGSTOP) beyond its lease, then goes on while others have its runs", short=2, long=10
)
async def orchestrator_frozen_beyond_its_lease(arena: Arena, times: int) -> None:
    for _ in range(times):
        async with conversations(arena) as runs:
            plans = runs.plan(5, turns=3)
            frozen = await runs.hold(plans, stop_at(Point.DISPATCHED, 2, arena.rng.choice(plans).run))
            await until(partial(is_stopped, frozen.pid))
            arena.injected()
            await asyncio.sleep(LEASE_S + 4)
            os.kill(frozen.pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


@fault(
    "a random worker is killed every two seconds and an orchestrator every five, while conversations go on",
    once=2,
    short=15,
    long=75,
)
async def chaos(arena: Arena, times: int) -> None:
    runs_each = {Form.ONCE: 10, Form.SHORT: 60, Form.LONG: 60}[arena.form]
    await arena.replenish(io=3, cpu=2)
    async with conversations(arena) as runs:

        async def begin() -> Holder:
            return await runs.hold(runs.plan(runs_each, turns=3, calls=5, seconds=0.2, tools=MOSTLY_QUICK), at_once=12)

        living = [await begin(), await begin()]
        for number in range(times):
            due = time.monotonic() + 2.0
            pool = arena.rng.choice(["io", "io", "io", "cpu"])
            await asyncio.to_thread(arena.fleet.kill, arena.rng.choice(arena.fleet.alive(pool)))
            arena.injected()
            await asyncio.to_thread(arena.fleet.start_worker, pool)
            if number % 5 in {1, 4}:  # every five seconds, or nearly
                await asyncio.sleep(max(0.0, due - time.monotonic() - arena.rng.random()))
                oldest = living.pop(0)
                # One that has begun nothing yet would die for nothing.
                await until(lambda holder=oldest: holder.begun)
                arena.injected(await oldest.kill())
                living.append(await begin())
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        for holder in living:
            await until(lambda holder=holder: holder.begun)
        await asyncio.to_thread(arena.fleet.wait_until_ready)
