"""The matrix of losses: each loss, at each stage, over calls of each effect in each place, all at the same time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tests.faults.arena import FAULTS, LEASE_S, Arena, Fault, Form
from tests.faults.cells import Loss, Party, Stage, Way, stages
from tests.faults.losing import LossArena, Trial
from toolfleet.testing import Proxy

STAND = "matrix"

BRIEFLY_S = 0.4 * LEASE_S
BEYOND_S = LEASE_S + 3.0
"""So long that whoever is away has lost its lease, and others have taken over."""

Act = Callable[[Trial], Awaitable[None]]

LOSSES: dict[str, Loss] = {}


def loss(what: str, party: Party, way: Way, **allows: bool) -> Callable[[Act], Act]:
    """Enter a function among the losses, and its trials among the faults."""

    def enter(act: Act) -> Act:
        name = act.__name__
        lost = LOSSES[name] = Loss(name, what, party, way, **allows)

        async def inject(arena: Arena, times: int) -> None:
            assert isinstance(arena, LossArena)
            for number, stage in enumerate(stages(arena.turn + list(LOSSES).index(name), times)):
                await Trial(arena, lost, stage, number).perform(act)

        times = {Form.ONCE: 1, Form.SHORT: 1, Form.LONG: 2 * len(Stage)}
        fault_name = f"matrix_{name}"
        FAULTS[fault_name] = Fault(fault_name, what, inject, times, STAND)
        return act

    return enter


# --- killed ----------------------------------------------------------------------------------------------------------


@loss("workers are killed", Party.WORKER, Way.KILLED, may_repeat=True)
async def worker_killed(trial: Trial) -> None:
    await trial.stand()
    await trial.relief()
    async with trial.happening():
        for worker in trial.crew.workers:
            worker.process.kill()


@loss("processes of prefork workers are killed", Party.WORKER, Way.KILLED, may_repeat=True, takes_a_child=True)
async def child_killed(trial: Trial) -> None:
    await trial.stand()
    async with trial.happening():
        for pid in trial.arena.director.pids.values():
            os.kill(pid, signal.SIGKILL)


@loss("workers and all they started are killed", Party.WORKER, Way.KILLED, may_repeat=True)
async def machine_lost(trial: Trial) -> None:
    await trial.stand()
    await trial.relief()
    async with trial.happening():
        for worker in trial.crew.workers:
            await asyncio.to_thread(trial.arena.fleet.lose_machine, worker)


@loss("the server is killed and started again", Party.SERVER, Way.KILLED)
async def server_killed(trial: Trial) -> None:
    await server_down(trial, trial.server.kill)


@loss("the server is stopped and started again", Party.SERVER, Way.KILLED)
async def server_stopped(trial: Trial) -> None:
    await server_down(trial, trial.server.stop)


async def server_down(trial: Trial, end: Callable[[], None]) -> None:
    await trial.stand()
    async with trial.happening():
        await asyncio.to_thread(end)
        trial.release()
        await asyncio.sleep(BRIEFLY_S)
        await asyncio.to_thread(trial.server.start)


@loss("the orchestrator is killed", Party.ORCHESTRATOR, Way.KILLED)
async def orchestrator_killed(trial: Trial) -> None:
    await stand_behind_a_proxy(trial)
    async with trial.happening():
        assert trial.holder
        await trial.holder.kill()


@loss("the orchestrator is gone, and none of its connections is closed", Party.ORCHESTRATOR, Way.KILLED)
async def orchestrator_machine_lost(trial: Trial) -> None:
    proxy = await stand_behind_a_proxy(trial)
    async with trial.happening():
        assert trial.holder
        proxy.hold()
        await trial.holder.kill()


# --- refused ---------------------------------------------------------------------------------------------------------


@loss("every connection of workers is reset", Party.WORKER, Way.REFUSED)
async def worker_cut_off(trial: Trial) -> None:
    await trial.stand()
    async with trial.happening():
        await asyncio.to_thread(trial.crew.proxy.cut)


@loss("workers are refused a connection beyond their lease", Party.WORKER, Way.REFUSED, may_repeat=True)
async def worker_refused_beyond_its_lease(trial: Trial) -> None:
    await trial.stand()
    await trial.relief()
    async with trial.happening():
        await asyncio.to_thread(trial.crew.proxy.refuse)
        trial.release()
        await asyncio.sleep(BEYOND_S)
        await asyncio.to_thread(trial.crew.proxy.admit)


@loss("the server is out of memory", Party.SERVER, Way.REFUSED)
async def server_out_of_memory(trial: Trial) -> None:
    await server_refuses(trial, trial.server.out_of_memory())


@loss("the server is a replica for a while, and read-only", Party.SERVER, Way.REFUSED)
async def server_read_only(trial: Trial) -> None:
    await server_refuses(trial, trial.server.as_replica())


async def server_refuses(trial: Trial, refusing: AbstractContextManager[None]) -> None:
    await trial.stand()
    async with trial.happening():
        with refusing:
            trial.release()
            await asyncio.sleep(BRIEFLY_S)


@loss("every connection of the orchestrator is reset", Party.ORCHESTRATOR, Way.REFUSED)
async def orchestrator_cut_off(trial: Trial) -> None:
    proxy = await stand_behind_a_proxy(trial)
    async with trial.happening():
        await asyncio.to_thread(proxy.cut)


@loss("the orchestrator is refused a connection beyond its lease", Party.ORCHESTRATOR, Way.REFUSED)
async def orchestrator_refused_beyond_its_lease(trial: Trial) -> None:
    proxy = await stand_behind_a_proxy(trial)
    async with trial.happening():
        await asyncio.to_thread(proxy.refuse)
        trial.release()
        await asyncio.sleep(BEYOND_S)
        await asyncio.to_thread(proxy.admit)


# --- frozen ----------------------------------------------------------------------------------------------------------


@loss("workers are frozen for less than their lease", Party.WORKER, Way.FROZEN)
async def worker_frozen_briefly(trial: Trial) -> None:
    await workers_frozen(trial, [worker.pid for worker in trial.crew.workers], BRIEFLY_S)


@loss("workers are frozen beyond their lease", Party.WORKER, Way.FROZEN, may_repeat=True)
async def worker_frozen_beyond_its_lease(trial: Trial) -> None:
    await workers_frozen(trial, [worker.pid for worker in trial.crew.workers], BEYOND_S)


@loss("workers and all they started are frozen beyond their lease", Party.WORKER, Way.FROZEN, may_repeat=True)
async def machine_frozen_beyond_its_lease(trial: Trial) -> None:
    await workers_frozen(trial, None, BEYOND_S)


async def workers_frozen(trial: Trial, pids: list[int] | None, seconds: float) -> None:
    """Stop these processes of the crew, or all of them, for so long."""
    await trial.stand()
    if seconds > LEASE_S:
        await trial.relief()
    frozen = [process.pid for process in trial.crew.processes()] if pids is None else pids
    async with trial.happening():
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        trial.release()
        await asyncio.sleep(seconds)
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@loss("no byte of workers comes through beyond their lease", Party.WORKER, Way.FROZEN, may_repeat=True)
async def worker_out_of_reach(trial: Trial) -> None:
    await trial.stand()
    await trial.relief()
    async with trial.happening():
        trial.crew.proxy.hold()
        trial.release()
        await asyncio.sleep(BEYOND_S)
        trial.crew.proxy.release()


@loss("the server is frozen for less than a lease", Party.SERVER, Way.FROZEN)
async def server_frozen_briefly(trial: Trial) -> None:
    await server_frozen(trial, BRIEFLY_S)


@loss("the server is frozen beyond every lease", Party.SERVER, Way.FROZEN)
async def server_frozen_beyond_leases(trial: Trial) -> None:
    await server_frozen(trial, BEYOND_S)


async def server_frozen(trial: Trial, seconds: float) -> None:
    await trial.stand()
    async with trial.happening():
        with trial.server.frozen():
            trial.release()
            await asyncio.sleep(seconds)


@loss("the orchestrator is frozen for less than its lease", Party.ORCHESTRATOR, Way.FROZEN)
async def orchestrator_frozen_briefly(trial: Trial) -> None:
    await orchestrator_frozen(trial, BRIEFLY_S)


@loss("the orchestrator is frozen beyond its lease", Party.ORCHESTRATOR, Way.FROZEN)
async def orchestrator_frozen_beyond_its_lease(trial: Trial) -> None:
    await orchestrator_frozen(trial, BEYOND_S)


async def orchestrator_frozen(trial: Trial, seconds: float) -> None:
    await stand_behind_a_proxy(trial)
    async with trial.happening():
        assert trial.holder
        os.kill(trial.holder.pid, signal.SIGSTOP)
        trial.release()
        await asyncio.sleep(seconds)
        os.kill(trial.holder.pid, signal.SIGCONT)


# --- rolled back -----------------------------------------------------------------------------------------------------


@loss("the server comes back as it was before workers had the calls", Party.SERVER, Way.ROLLED_BACK, forgets=True)
async def server_forgets_the_claims(trial: Trial) -> None:
    trial.crew.proxy.hold()
    await trial.begin()
    while await trial.arena.queued() < len(trial.call_ids):
        await asyncio.sleep(0.01)  # a queue's length tells of no event
    kept = await asyncio.to_thread(trial.server.keep)
    trial.crew.proxy.release()
    await server_rolled_back(trial, kept)


@loss("the server comes back with a dump from before the run", Party.SERVER, Way.ROLLED_BACK, forgets=True)
async def server_forgets_the_run(trial: Trial) -> None:
    kept = await asyncio.to_thread(lambda: trial.server.keep(as_dump=True))
    await server_rolled_back(trial, kept)


async def server_rolled_back(trial: Trial, kept: Path) -> None:
    """Have it come back older while workers hold the calls, with others that are free to take them once more."""
    await trial.stand()
    await trial.relief()
    async with trial.happening():
        await asyncio.to_thread(trial.server.roll_back, kept)
        await asyncio.sleep(BRIEFLY_S)


async def stand_behind_a_proxy(trial: Trial) -> Proxy:
    """As `stand`, with an orchestrator in a process of its own, and a proxy before it."""
    trial.proxy = await asyncio.to_thread(Proxy(trial.server.port_url).__enter__)
    await trial.stand()
    return trial.proxy
