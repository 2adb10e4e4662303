"""An orchestrator killed in the midst of a reply: whoever goes on with its run, or ends it, tells what has happened."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.truth.ledger import WAIT_S, judge
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point

ROOT = Path(__file__).parents[2]
MANY = 60


@asynccontextmanager
async def lone(fleet, writer, where="nowhere"):
    """The process, and the id of the run that it has begun; it is dead by the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.truth.lone", writer.base_url, where),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **fleet.settings.as_environment()},
    )
    try:
        async with asyncio.timeout(WAIT_S):
            yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()


async def killed(process):
    if process.returncode is None:
        process.kill()
    await process.wait()


def a_reply(ledger, pause_s=0.1):
    """Its calls go before it ends; without a pause, after it."""
    return Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=2)], pause_s)


async def test_half_a_reply_of_a_killed_orchestrator_is_the_reply_for_whoever_adopts_its_run(fleet, ledger):
    async with slow_writer(a_reply(ledger).held()) as writer:
        async with lone(fleet, writer) as (process, run_id):
            await ledger.has("quick", "slow")
            await killed(process)
        async with Orchestrator(writer.model(), settings=fleet.settings) as second:
            run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert judge(run, ledger) == {"quick": "made", "slow": "made"}
    assert run.state is State.DONE


async def test_an_adopted_run_keeps_to_its_limit_with_what_was_sent_before(fleet, ledger):
    assert Limits().calls_per_tool < MANY
    reply = Reply([ledger.asks("charge", f"k{n}") for n in range(MANY)], 0.005).held()
    async with slow_writer(reply) as writer:
        async with lone(fleet, writer) as (process, run_id):
            await ledger.has("k39")
            await killed(process)
        async with Orchestrator(writer.model(), settings=fleet.settings) as second:
            run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    told = judge(run, ledger)
    assert ledger.effects.total() == Limits().calls_per_tool
    assert list(told.values()).count("made") == Limits().calls_per_tool


@pytest.mark.parametrize("where", [Point.REPLY_STORED, Point.DISPATCHED, Point.GATHERED, "half a reply"])
async def test_a_run_whose_orchestrator_was_killed_and_that_is_cancelled_tells_what_has_happened(fleet, ledger, where):
    reply = a_reply(ledger, 0.1 if where == "half a reply" else 0.0)
    async with slow_writer(reply.held() if where == "half a reply" else reply) as writer:
        async with lone(fleet, writer, where) as (process, run_id):
            if where == "half a reply":
                await ledger.has("quick", "slow")
                await killed(process)
            await process.wait()
        async with Orchestrator(settings=fleet.settings) as outsider:
            run = await outsider.cancel(run_id)
            told = judge(run, ledger)
            # What was still in a queue then may have been taken from it.
            await asyncio.sleep(1)
            assert judge(await outsider.get(run_id), ledger) == told
    assert run.state is State.CANCELLED
    if where is Point.GATHERED:
        assert told == {"quick": "made", "slow": "made"}


@pytest.mark.parametrize("tool", ["charge", "charge_again"])
@pytest.mark.parametrize("where", [Point.DISPATCHED, Point.GATHERED])
async def test_calls_that_were_back_before_it_was_noted_that_they_were_sent_are_had_once(fleet, ledger, where, tool):
    reply = Reply([ledger.asks(tool, f"k{n}") for n in range(5)], 0.0)
    async with slow_writer(reply) as writer:
        async with lone(fleet, writer, where) as (process, run_id):
            await process.wait()
        await ledger.has(*(f"k{n}" for n in range(5)))
        async with Orchestrator(writer.model(), settings=fleet.settings) as second:
            run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert judge(run, ledger) == {f"k{n}": "made" for n in range(5)}
    assert run.state is State.DONE
