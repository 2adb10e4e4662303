"""Calls that go while the model still writes: before the reply is whole, once, and kept through an adoption."""

import asyncio
import json

import pytest
from conversations import requesting
from fleets import fleet_of

from toolfleet.messages import AssistantMessage, ToolMessage, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models.protocol import CallComplete, ReplyComplete
from toolfleet.orchestrator.run.events import CallsStreamed, ModelReplied
from toolfleet.orchestrator.run.states import State

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


class SlowWriter:
    """A model that completes its calls one by one, each when the test says so, and then waits to end its reply."""

    name = "slow writer"

    def __init__(self, message):
        self.message = message
        self.pen = asyncio.Queue()
        self.asked = 0

    async def stream(self, messages, tools, **_):
        self.asked += 1
        said = AssistantMessage(content="done") if any(isinstance(m, ToolMessage) for m in messages) else self.message
        for index, call in enumerate(said.tool_calls):
            await self.pen.get()
            yield CallComplete(index=index, call=call)
        if said.tool_calls:
            await self.pen.get()
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason="stop")

    async def aclose(self):
        pass


def on(stage, *more):
    plays = ("a", "play_once", json.dumps({"stage": stage.path}))
    return requesting(plays, *more)


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


async def test_a_call_starts_while_the_reply_is_still_being_written_and_runs_once(fleet, stage):
    model = SlowWriter(on(stage, ("b", "echo", '{"value": 2}')))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        running = asyncio.create_task(orchestrator.run("?"))
        model.pen.put_nowait("first call")
        actor = await stage.enters()
        actor.returns("early")
        model.pen.put_nowait("second call")
        model.pen.put_nowait("end")
        run = await asyncio.wait_for(running, WAIT_S)
    assert answers(run) == ["early", "2"]
    assert len(stage.actors) == 1
    assert [call.requested_id for call in run.calls] == ["a", "b"]


async def test_a_reply_that_ends_at_once_costs_no_extra_entry(fleet):
    model = SlowWriter(requesting(("a", "echo", '{"value": 1}')))
    model.pen.put_nowait("call")
    model.pen.put_nowait("end")
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
        entries = await orchestrator._services.store.entries(run.run_id)
    assert not [entry for entry in entries if isinstance(entry.event, CallsStreamed)]


async def test_what_was_sent_of_a_reply_that_nobody_finished_is_the_reply(fleet, stage):
    model = SlowWriter(on(stage, ("b", "echo", '{"value": 2}')))
    async with Orchestrator(model=model, settings=fleet.settings) as first:
        run_id = await first.start("?")
        model.pen.put_nowait("first call")
        actor = await stage.enters()
    second_model = SlowWriter(model.message)
    async with Orchestrator(model=second_model, settings=fleet.settings) as second:
        actor.returns("kept")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
        replies = [
            entry for entry in await second._services.store.entries(run_id) if isinstance(entry.event, ModelReplied)
        ]
    assert (run.state, answers(run)) == (State.DONE, ["kept"])
    assert len(stage.actors) == 1
    assert (second_model.asked, len(replies)) == (1, 2)


async def test_a_run_cancelled_in_the_middle_of_a_reply_stops_what_was_sent(fleet, stage):
    model = SlowWriter(on(stage))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        model.pen.put_nowait("first call")
        actor = await stage.enters()
        run = await orchestrator.cancel(run_id)
        assert await actor.leaves() == "cancelled"
    assert run.state is State.CANCELLED
    assert "may or may not have happened" in run.messages[-1].content


async def test_calls_that_need_approval_or_hold_secrets_wait_for_the_whole_reply(fleet):
    secret = ("a", "knock", '{"word": "open-sesame"}')
    model = SlowWriter(requesting(secret, ("b", "echo", '{"value": "plain"}')))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        model.pen.put_nowait("first")
        model.pen.put_nowait("second")
        async with asyncio.timeout(WAIT_S):
            while not (await orchestrator.get(run_id)).calls_under_way:
                await asyncio.sleep(0.01)
        run = await orchestrator.get(run_id)
        assert [call.tool for call in run.calls_under_way] == ["echo"]
        assert "open-sesame" not in repr(await orchestrator._services.store.entries(run_id))
        model.pen.put_nowait("end")
        run = await orchestrator.wait(run_id)
    assert answers(run) == ["11 letters, 1 times", "plain"]
