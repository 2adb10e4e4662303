"""A server that comes back older in the midst of runs: each ends, with one message for each call, and can be read."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conversations import WrittenModel, requesting
from fleets import fleet_of

from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.testing import FaultyServer

WAIT_S = 60


class Forgetful:
    """A server that comes back with what it held at an earlier moment: from a dump, or from its append-only file."""

    def __init__(self, server, *, as_dump):
        self.url = server.url
        self._server = server
        self._as_dump = as_dump

    def remember(self):
        self._kept = self._server.keep(as_dump=self._as_dump)

    def come_back_older(self):
        self._server.roll_back(self._kept)


@pytest.fixture(scope="module", params=["snapshot", "log"])
def server(request):
    with FaultyServer() as running:
        yield Forgetful(running, as_dump=request.param == "snapshot")


@pytest.fixture(scope="module")
def fleet(server):
    with fleet_of(pools={"io": 1, "long": 1}, redis_url=server.url, lease_s=2, heartbeat_s=0.3) as running:
        yield running


class Gate:
    """A reply that is asked for, and comes when the test says so."""

    def __init__(self, reply):
        self.reply = reply
        self.asked = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, _messages):
        self.asked.set()
        await self.opened.wait()
        return self.reply


def playing(stage, tool="play_once", id_="1"):
    return requesting((id_, tool, json.dumps({"stage": stage.path})))


def told(run):
    return [(message.tool_call_id, message.content) for message in run.messages if isinstance(message, ToolMessage)]


async def ended(store, orchestrator, run_id):
    """The run once it has ended, as its orchestrator and anybody who reads the store have it."""
    async with asyncio.timeout(WAIT_S):
        run = await orchestrator.wait(run_id)
    assert (await store.load(run_id)).run == run
    assert len(told(run)) == len(run.calls) == len({call_id for call_id, _ in told(run)})
    return run


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


def in_state(store, run_id, state):
    async def is_so():
        return (await store.load(run_id)).run.state is state

    return is_so


async def came_back(server):
    await asyncio.to_thread(server.come_back_older)


# --- its owner lives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False], ids=["its beginning is kept", "all of it is lost"])
async def test_a_run_that_thinks_goes_on_where_it_was(server, fleet, stage, store, is_stored):
    gate = Gate(AssistantMessage(content="done"))
    model = WrittenModel((playing(stage), "tool_calls"), (gate, "stop"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        if not is_stored:
            await asyncio.to_thread(server.remember)
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        if is_stored:
            await asyncio.to_thread(server.remember)
        actor.returns("once")
        async with asyncio.timeout(WAIT_S):
            await gate.asked.wait()
        await came_back(server)
        gate.opened.set()
        run = await ended(store, orchestrator, run_id)
    assert (run.state, run.answer, told(run)) == (State.DONE, "done", [("1", "once")])
    assert len(model.heard) == 2, "no reply is asked for again"


async def test_a_once_call_that_runs_is_not_run_again_and_its_result_counts(server, fleet, stage, store):
    gate = Gate(playing(stage))
    async with Orchestrator(model=WrittenModel((gate, "tool_calls")), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        async with asyncio.timeout(WAIT_S):
            await gate.asked.wait()
        await asyncio.to_thread(server.remember)
        gate.opened.set()
        actor = await stage.enters()
        await until(in_state(store, run_id, State.CALLING))
        await came_back(server)
        actor.returns("once")
        run = await ended(store, orchestrator, run_id)
    assert (run.state, told(run)) == (State.DONE, [("1", "once")])
    assert len(stage.actors) == 1


async def test_a_call_that_nobody_has_read_yet_is_sent_again_where_it_may_be_repeated(server, fleet, stage, store):
    """Its worker is stopped until the message is lost with the store."""
    gate = Gate(requesting(("1", "echo", '{"value": "back"}')))
    [worker] = [each for each in fleet.workers if each.pool == "io"]
    async with Orchestrator(model=WrittenModel((gate, "tool_calls")), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        async with asyncio.timeout(WAIT_S):
            await gate.asked.wait()
        await asyncio.to_thread(server.remember)
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            gate.opened.set()
            await until(in_state(store, run_id, State.CALLING))
            await asyncio.sleep(0.3)  # until it is written that it was sent
            await came_back(server)
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        run = await ended(store, orchestrator, run_id)
    assert (run.state, told(run)) == (State.DONE, [("1", "back")])


async def test_a_decision_is_waited_for_and_counts_once(server, fleet, stage, store):
    model = WrittenModel((playing(stage), "tool_calls"))
    needs = {"needs_approval": lambda call: call.tool == "play_once"}
    async with Orchestrator(model=model, settings=fleet.settings, **needs) as orchestrator:
        await asyncio.to_thread(server.remember)
        run_id = await orchestrator.start("?")
        await until(in_state(store, run_id, State.PARKED))
        await came_back(server)
        await until(lambda: restored(store, run_id, State.PARKED))
        await orchestrator.approve(f"{run_id}.1.0", Approval(granted=True))
        (await stage.enters()).returns("allowed")
        run = await ended(store, orchestrator, run_id)
    assert told(run) == [("1", "allowed")]
    assert len(stage.actors) == 1


async def test_a_decision_that_the_store_has_lost_is_kept_by_who_acted_on_it(server, fleet, stage, store):
    model = WrittenModel((playing(stage), "tool_calls"))
    needs = {"needs_approval": lambda call: call.tool == "play_once"}
    async with Orchestrator(model=model, settings=fleet.settings, **needs) as orchestrator:
        run_id = await orchestrator.start("?")
        await until(in_state(store, run_id, State.PARKED))
        await asyncio.to_thread(server.remember)
        await orchestrator.approve(f"{run_id}.1.0", Approval(granted=True))
        actor = await stage.enters()
        await until(in_state(store, run_id, State.CALLING))
        await came_back(server)
        actor.returns("allowed")
        run = await ended(store, orchestrator, run_id)
    assert (told(run), run.calls[0].approval.granted) == ([("1", "allowed")], True)
    assert len(stage.actors) == 1


@pytest.mark.parametrize("slow", ["wait", "handle"])
async def test_a_parked_run_is_woken_by_what_comes_back(server, fleet, stage, store, slow):
    """What may be repeated is started again, as nobody can know whether a worker has it; the first result counts."""
    model = WrittenModel((playing(stage, "play_long"), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await asyncio.to_thread(server.remember)
        run_id = await orchestrator.start("?", slow=slow)
        actor = await stage.enters()
        await until(in_state(store, run_id, State.PARKED if slow == "wait" else State.WAITING))
        await came_back(server)
        await until(lambda: restored(store, run_id, State.PARKED if slow == "wait" else State.WAITING))
        actor.returns("late")
        async with asyncio.timeout(WAIT_S):
            run = await orchestrator.wait(run_id)
    assert run.state is State.DONE
    assert "late" in told(run)[-1][1]
    assert (await store.load(run_id)).run == run


async def restored(store, run_id, state):
    return bool(await store.runs_among([run_id])) and await in_state(store, run_id, state)()


async def test_a_run_that_has_ended_stays_ended(server, fleet, store):
    async with Orchestrator(model=WrittenModel(), settings=fleet.settings) as orchestrator:
        await asyncio.to_thread(server.remember)
        run = await orchestrator.run("?")
        await came_back(server)
        await until(lambda: restored(store, run.run_id, State.DONE))
        assert (await store.load(run.run_id)).run == run
        assert [head.run_id for head in await store.heads(limit=1)] == [run.run_id]


async def test_a_run_that_somebody_else_ended_meanwhile_is_ended(server, fleet, stage, store):
    """Before its owner hears of the server's return: that is stopped until then."""
    gate = Gate(AssistantMessage(content="done"))
    model = WrittenModel((playing(stage), "tool_calls"), (gate, "stop"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await until(in_state(store, run_id, State.CALLING))
        await asyncio.to_thread(server.remember)
        actor.returns("once")
        async with asyncio.timeout(WAIT_S):
            await gate.asked.wait()
        server.come_back_older()  # on this thread: nothing of the orchestrator goes on meanwhile
        cancelled_elsewhere(fleet.settings, run_id)
        gate.opened.set()
        run = await ended(store, orchestrator, run_id)
    assert (run.state, run.reason) == (State.CANCELLED, "from elsewhere")


def cancelled_elsewhere(settings, run_id):
    """By another process, before this one's loop goes on."""
    command = [sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "runs", "cancel", run_id]
    subprocess.run(
        [*command, "--reason", "from elsewhere"], env={**os.environ, **settings.as_environment()}, check=True
    )


# --- it does not ----------------------------------------------------------------------------------------------------


async def test_a_run_without_an_owner_goes_on_from_what_is_stored(server, fleet, stage, store):
    """Its orchestrator dies with the server, and the reply that asked for the call is asked for again."""
    async with RehearsalServer() as rehearsal:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("lone_orchestrator.py")),
            rehearsal.base_url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **fleet.settings.as_environment()},
        )
        try:
            assert await process.stdout.readline() == b"ready\n"
            asked = {"question": f'call play {{"stage": "{stage.path}"}}', "run_id": "orphan"}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            assert await process.stdout.readline() == b"orphan\n"
            actor = await stage.enters()
            await asyncio.to_thread(server.remember)
            actor.returns("in a life that nobody remembers")
            await until(in_state(store, "orphan", State.DONE))
        finally:
            process.kill()
            await process.wait()
            process._transport.close()
        await came_back(server)
        model = OpenAIChat(REHEARSAL_MODEL, base_url=rehearsal.base_url, api_key="rehearsal")
        async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
            performing = asyncio.create_task(perform(stage))
            try:
                run = await ended(store, orchestrator, "orphan")
            finally:
                performing.cancel()
        assert run.state is State.DONE
    await store.delete("orphan")


async def perform(stage):
    while True:
        (await stage.enters()).returns("again")
