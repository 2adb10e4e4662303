"""Runs that outlive their orchestrator: killed, stopped, robbed of its lease, or told from outside."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conversations import rehearsed
from fleets import fleet_of

from toolfleet.calls import FailureKind, Returned
from toolfleet.messages import ToolMessage, UserMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.run.events import ModelReplied, RunAdopted, RunStopped
from toolfleet.orchestrator.run.states import State

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "long": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


@pytest.fixture
async def model():
    async with RehearsalServer() as server:
        yield server


class Lone:
    """An orchestrator that can be killed."""

    def __init__(self, process):
        self.process = process

    async def begin(self, question, **options):
        self.process.stdin.write(json.dumps({"question": question, **options}).encode() + b"\n")
        return await self.says()

    async def says(self):
        async with asyncio.timeout(WAIT_S):
            return (await self.process.stdout.readline()).decode().strip()

    async def ends(self, number):
        self.process.send_signal(number)
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()


@pytest.fixture
def lone(fleet, model):
    @asynccontextmanager
    async def started():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("lone_orchestrator.py")),
            model.base_url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **fleet.settings.as_environment()},
        )
        try:
            one = Lone(process)
            assert await one.says() == "ready"
            yield one
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()
            process._transport.close()

    return started


@asynccontextmanager
async def another(fleet, model):
    chat = OpenAIChat(REHEARSAL_MODEL, base_url=model.base_url, api_key="rehearsal")
    async with Orchestrator(model=chat, settings=fleet.settings) as orchestrator:
        yield orchestrator


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


def on(stage, tool="play_once"):
    return f'call {tool} {{"stage": "{stage.path}"}}'


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


# --- lost ------------------------------------------------------------------------------------------------------------


async def test_L4_a_killed_orchestrators_run_goes_on_with_each_tool_run_once_and_no_reply_asked_twice(
    fleet, model, lone, stage, store
):
    """Killed when one of two calls is back."""
    async with lone() as first:
        run_id = await first.begin(f"{on(stage)} and call who_am_i {{}}")
        actor = await stage.enters()
        await until(lambda: store.results([f"{run_id}.1.1"]))
        await first.ends(signal.SIGKILL)
    async with another(fleet, model) as second:
        ended = asyncio.create_task(second.wait(run_id))
        await until(lambda: store.owner(run_id))
        actor.returns("from the first life")
        run = await asyncio.wait_for(ended, WAIT_S)
    assert run.state is State.DONE
    assert answers(run)[0] == "from the first life"
    assert len(stage.actors) == 1
    assert model.request_count == 2
    adopted = [entry.event for entry in await store.entries(run_id) if isinstance(entry.event, RunAdopted)]
    assert len(adopted) == 1


async def test_a_result_that_lands_while_nobody_owns_the_run_is_found(fleet, model, lone, stage, store):
    async with lone() as first:
        run_id = await first.begin(on(stage))
        actor = await stage.enters()
        await first.ends(signal.SIGKILL)
    actor.returns("while nobody listened")
    await until(lambda: store.results([f"{run_id}.1.0"]))
    async with another(fleet, model) as second:
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert answers(run) == ["while nobody listened"]


async def test_a_parked_run_is_woken_in_its_next_orchestrator(fleet, model, lone, stage, store):
    async with lone() as first:
        run_id = await first.begin(on(stage, "play_long"), slow="wait")
        actor = await stage.enters()
        await until(lambda: state_is(store, run_id, State.PARKED))
        await first.ends(signal.SIGKILL)
    async with another(fleet, model) as second:
        await until(lambda: adopted_by_somebody(store, run_id))
        await until(lambda: is_resting(second))
        actor.returns("at last")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert answers(run) == ["at last"]
    assert len(stage.actors) == 1
    assert model.request_count == 2


async def test_an_orchestrator_that_is_asked_to_stop_hands_its_runs_over(fleet, model, lone, stage, store):
    async with another(fleet, model) as second, lone() as first:
        run_id = await first.begin(on(stage))
        actor = await stage.enters()
        assert await first.ends(signal.SIGTERM) == 0
        # At once: nobody waits for a lease to lapse.
        await until(lambda: adopted_by_somebody(store, run_id))
        actor.returns("handed over")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert (run.state, answers(run)) == (State.DONE, ["handed over"])


async def test_L6_one_that_was_frozen_beyond_its_lease_finds_its_run_taken_and_lets_go(
    fleet, model, lone, stage, store
):
    """Two orchestrators hold one run; the entries of one are refused."""
    async with lone() as first:
        run_id = await first.begin(f"{on(stage)} then {on(stage)}")
        actor = await stage.enters()
        first.process.send_signal(signal.SIGSTOP)
        async with another(fleet, model) as second:
            await until(lambda: adopted_by_somebody(store, run_id))
            first.process.send_signal(signal.SIGCONT)
            actor.returns("one")
            (await stage.enters()).returns("two")
            run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
            # The one that lost it works for others as before.
            other = await first.begin("call who_am_i {}")
            assert (await asyncio.wait_for(second.wait(other), WAIT_S)).state is State.DONE
    assert (run.state, answers(run)) == (State.DONE, ["one", "two"])
    replies = [entry for entry in await store.entries(run_id) if isinstance(entry.event, ModelReplied)]
    assert len(replies) == 3
    assert len(stage.actors) == 2


async def test_L6_an_event_that_follows_an_older_entry_is_refused(fleet, model, store):
    async with another(fleet, model) as orchestrator:
        run = await orchestrator.run('say "hello"', run_id="raced")
    stored = await store.load("raced")
    stop = RunStopped(state="failed", reason="too late")
    first, *_ = await store.entries("raced")
    assert await store.append(stored.run, stop, follows=first.link) is None
    assert (await store.load("raced")).run == run
    await store.delete("raced")


# --- told from outside ----------------------------------------------------------------------------------------------


async def test_L5_a_run_cancelled_from_elsewhere_stops_its_tool_and_does_not_ask_again(
    fleet, model, lone, stage, store
):
    async with lone() as first, Orchestrator(settings=fleet.settings) as outsider:
        run_id = await first.begin(f"{on(stage)} and call who_am_i {{}} then call who_am_i {{}}")
        actor = await stage.enters()
        run = await outsider.cancel(run_id, "no longer needed")
        assert await actor.leaves() == "cancelled"
        assert (run.state, run.reason) == (State.CANCELLED, "no longer needed")
        result = await until(lambda: result_of(outsider, store, f"{run_id}.1.0"))
        assert result.kind is FailureKind.CANCELLED
        assert len([message for message in run.messages if isinstance(message, ToolMessage)]) == 2
    async with another(fleet, model) as orchestrator:
        next_run = await orchestrator.run([*run.messages, UserMessage(content="call who_am_i {}")])
    assert next_run.state is State.DONE
    assert len(answers(next_run)) == 3
    assert model.request_count == 3


async def test_L5_a_cancelled_run_can_be_resumed_with_another_question(fleet, model, stage):
    async with another(fleet, model) as orchestrator:
        run_id = await orchestrator.start(on(stage))
        await stage.enters()
        await orchestrator.cancel(run_id)
        await orchestrator.resume(run_id, 'call echo {"value": "again"}')
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert run.state is State.DONE
    assert "echo: again" in run.answer
    assert run.calls[0].result.kind is FailureKind.CANCELLED


async def test_who_stops_waiting_cancels_the_run(fleet, model, stage, store):
    async with another(fleet, model) as orchestrator:
        waiting = asyncio.create_task(orchestrator.run(on(stage), run_id="abandoned"))
        actor = await stage.enters()
        waiting.cancel()
        assert await actor.leaves() == "cancelled"
        run = await orchestrator.wait("abandoned")
    assert run.state is State.CANCELLED
    await store.delete("abandoned")


async def test_an_ended_run_cannot_be_cancelled_and_an_unknown_one_is_not_found(fleet, model):
    async with another(fleet, model) as orchestrator:
        run = await orchestrator.run('say "done"')
        with pytest.raises(RunNotOpen):
            await orchestrator.cancel(run.run_id)
        with pytest.raises(RunNotFound):
            await orchestrator.cancel("nobody")


async def test_the_same_run_id_again_joins_the_run_that_is_there(fleet, model, stage):
    async with another(fleet, model) as orchestrator:
        first = asyncio.create_task(orchestrator.run(on(stage), run_id="mine"))
        actor = await stage.enters()
        second = asyncio.create_task(orchestrator.run(on(stage), run_id="mine"))
        actor.returns("once")
        assert await first == await second
        assert await orchestrator.run("anything", run_id="mine") == await first
        assert await orchestrator.delete("mine")
    assert len(stage.actors) == 1
    assert model.request_count == 2


async def test_a_run_goes_on_while_its_orchestrator_is_closed_and_opened_again(fleet, model, stage):
    async with another(fleet, model) as first:
        run_id = await first.start(on(stage))
        actor = await stage.enters()
    async with another(fleet, model) as second:
        actor.returns("kept")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert run.calls[0].result == Returned(content="kept")


async def test_runs_are_listed_with_the_newest_first(fleet):
    async with rehearsed(fleet.settings) as orchestrator:
        older = await orchestrator.run('say "older"')
        newer = await orchestrator.run('say "newer"', keep_s=100)
        heads = await orchestrator.runs(limit=2)
    assert {head.run_id for head in heads} == {older.run_id, newer.run_id}
    assert all(head.state is State.DONE and not head.owner for head in heads)


async def state_is(store, run_id, state):
    return (await store.load(run_id)).run.state is state


async def adopted_by_somebody(store, run_id):
    return any(isinstance(entry.event, RunAdopted) for entry in await store.entries(run_id))


async def is_resting(orchestrator):
    return orchestrator.working == 0


async def result_of(orchestrator, store, call_id):
    [sealed] = await store.results([call_id])
    return orchestrator._seal.open_result(sealed, call_id) if sealed else None
