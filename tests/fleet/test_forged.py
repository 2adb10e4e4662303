"""Attacks with write access to Redis and no secret, on real workers and open orchestrators."""

import asyncio
import json
import time

import pytest
from conversations import WrittenModel, requesting
from fleets import asking, fleet_of

from tests.run import machine
from toolfleet.calls import Returned
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.errors import HandleNotFound, NewerVersion, RunNotBelieved
from toolfleet.orchestrator.loop import driver
from toolfleet.orchestrator.run.events import Approval, RunAdopted
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_reader import HandleRecord
from toolfleet.orchestrator.store.conversations import Conversations
from toolfleet.wire import Seal

WAIT_S = 30
FORGED = Returned(content="forged").model_dump_json()


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "long": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


def told(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


def playing(stage, tool="play_once"):
    return requesting(("1", tool, json.dumps({"stage": stage.path})))


async def counted(client, fleet, what):
    return int(await client.hget(fleet.settings.keys.counters(), what) or 0)


async def test_a_made_up_run_is_adopted_by_nobody_and_not_tried_again(fleet, client, stage):
    keys, model = fleet.settings.keys, WrittenModel()
    started = machine.STARTED.model_copy(update={"run_id": "made-up", "model": model.name})
    asks = machine.reply_with(["play_once"], 0).model_dump()
    asks["message"]["tool_calls"][0]["arguments"] = json.dumps({"stage": stage.path})
    await client.xadd(keys.run("made-up"), {"e": started.model_dump_json(), "s": "0" * 64})
    await client.xadd(keys.run("made-up"), {"e": json.dumps(asks), "s": "0" * 64})
    await client.hset(keys.head("made-up"), mapping={"state": "calling", "model": model.name})
    before = await counted(client, fleet, "runs_not_believed")
    await client.sadd(keys.unowned(model.name), "made-up")
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await until(lambda: refused_since(client, fleet, before))
        assert (await orchestrator.run("?")).state is State.DONE
        with pytest.raises(RunNotBelieved):
            await orchestrator.get("made-up")
        assert await client.smembers(keys.unowned(model.name)) == set()
        assert await client.sismember(keys.owned(orchestrator.orchestrator_id), "made-up") == 0
        await client.hset(keys.head("made-up"), "owner", orchestrator.orchestrator_id)
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"run": "made-up"})
        await until(lambda: refused_since(client, fleet, before + 1))
    assert len(model.heard) == 1
    assert stage.actors == []


async def refused_since(client, fleet, before):
    return await counted(client, fleet, "runs_not_believed") > before


async def test_a_made_up_approval_lets_no_call_run(fleet, client, store, stage):
    keys = fleet.settings.keys
    model = WrittenModel((playing(stage), "tool_calls"))
    needs = {"needs_approval": lambda call: call.tool == "play_once"}
    async with Orchestrator(model=model, settings=fleet.settings, **needs) as orchestrator:
        run_id = await orchestrator.start("?")
        await until(lambda: parked(store, run_id))
        event = {"type": "approval_given", "call_id": f"{run_id}.1.0", "approval": {"granted": True}}
        await client.xadd(keys.run(run_id), {"e": json.dumps(event), "s": "0" * 64})
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"run": run_id})
        await until(lambda: is_cut_off(store, run_id))
        await orchestrator.approve(f"{run_id}.1.0", Approval(granted=False, reason="not that"))
        run = await orchestrator.wait(run_id)
    assert "not that" in told(run)[0]
    assert stage.actors == []


async def parked(store, run_id):
    return (await store.load(run_id)).run.state is State.PARKED


async def is_cut_off(store, run_id):
    return await store.kept_aside(run_id) == 1


@pytest.mark.parametrize("model_of_the_other", ["written", "another"])
async def test_a_forged_head_takes_a_run_from_nobody_who_lives(fleet, client, store, stage, model_of_the_other):
    """Whoever it names is woken, and leaves the run to its owner; so does its owner whatever the head says."""
    keys = fleet.settings.keys
    model, other = WrittenModel((playing(stage), "tool_calls")), WrittenModel()
    other.name = model_of_the_other
    async with (
        Orchestrator(model=model, settings=fleet.settings) as first,
        Orchestrator(model=other, settings=fleet.settings) as second,
    ):
        run_id = await first.start("?")
        actor = await stage.enters()
        await until(lambda: is_calling(store, run_id))
        await client.hset(keys.head(run_id), mapping={"owner": second.orchestrator_id, "state": "parked"})
        for each in (first, second):
            await client.xadd(keys.replies(each.orchestrator_id), {"run": run_id})
        await until(lambda: was_told(client, keys.replies(first.orchestrator_id), run_id))
        actor.returns("once")
        run = await asyncio.wait_for(first.wait(run_id), WAIT_S)
    assert await adoptions(store, run_id) == []
    assert (run.state, told(run), len(stage.actors)) == (State.DONE, ["once"], 1)
    assert (await store.load(run_id)).run == run
    assert other.heard == []


async def was_told(client, replies, run_id):
    """Whether somebody else has told the orchestrator of its run, after the test has."""
    return sum(fields.get(b"run") == run_id.encode() for _, fields in await client.xrange(replies)) > 1


async def test_a_head_that_names_who_has_a_model_gives_it_the_run_of_one_who_is_gone(fleet, client, store):
    """As when the answer of the script that hands runs out is lost."""
    keys, model = fleet.settings.keys, WrittenModel()
    started = machine.STARTED.model_copy(update={"run_id": "orphan", "model": model.name, "orchestrator_id": "gone"})
    await store.begin(started, owner="gone")
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await client.hset(keys.head("orphan"), "owner", orchestrator.orchestrator_id)
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"run": "orphan"})
        run = await asyncio.wait_for(orchestrator.wait("orphan"), WAIT_S)
        assert await adoptions(store, "orphan") == [orchestrator.orchestrator_id]
    assert run.state is State.DONE
    await store.delete("orphan")


async def test_nobody_adopts_a_run_of_another_model_whatever_its_head_says(fleet, client, store):
    keys, model = fleet.settings.keys, WrittenModel()
    started = machine.STARTED.model_copy(update={"run_id": "foreign", "model": "elsewhere", "orchestrator_id": "gone"})
    await store.begin(started, owner="gone")
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await client.hset(keys.head("foreign"), "owner", orchestrator.orchestrator_id)
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"run": "foreign"})
        await until(lambda: is_in(client, keys.unowned("elsewhere"), "foreign"))
    assert await adoptions(store, "foreign") == []
    assert model.heard == []
    await store.delete("foreign")
    await client.delete(keys.unowned("elsewhere"))


async def is_calling(store, run_id):
    run = (await store.load(run_id)).run
    return any(call.deadline_unix_s for call in run.calls)


async def adoptions(store, run_id):
    events = [entry.event for entry in await store.entries(run_id)]
    return [event.orchestrator_id for event in events if isinstance(event, RunAdopted)]


@pytest.mark.parametrize("tool", ["play_once", "play_in_thread", "play_long"])
async def test_a_result_of_the_wrong_type_holds_up_neither_its_call_nor_others(fleet, client, stage, tool):
    keys = fleet.settings.keys
    model = WrittenModel((playing(stage, tool), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await client.rpush(keys.result(f"{run_id}.1.0"), "x")
        actor.returns("true")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
        other = await asyncio.wait_for(orchestrator.execute(asking(("echo", {"value": "others"}))), WAIT_S)
    assert told(run) == ["true"]
    assert other[0].content == "others"


@pytest.mark.parametrize("tool", ["play_once", "play_in_thread", "play_long"])
async def test_a_forged_result_does_not_keep_the_true_one_away(fleet, client, stage, tool):
    keys = fleet.settings.keys
    model = WrittenModel((playing(stage, tool), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        before = await counted(client, fleet, "forged_results")
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await client.set(keys.result(f"{run_id}.1.0"), "0" * 64 + FORGED)
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"c": f"{run_id}.1.0", "r": "0" * 64 + FORGED})
        [call] = await orchestrator.calls(run_id)
        assert call.result is None
        actor.returns("true")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert told(run) == ["true"]
    assert await counted(client, fleet, "forged_results") == before + 1


async def test_a_forged_result_does_not_keep_an_agents_answer_away(fleet, client, stage):
    keys = fleet.settings.keys
    agent = Agent("helper", "Helps.", tools=["play_once"])
    replies = [requesting(("1", "helper", '{"task": "?"}')), playing(stage), AssistantMessage(content="helped")]
    model = WrittenModel(*((reply, "tool_calls" if reply.tool_calls else "stop") for reply in replies))
    async with Orchestrator(model=model, settings=fleet.settings, agents=[agent]) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await client.set(keys.result(f"{run_id}.1.0"), "0" * 64 + FORGED)
        actor.returns("true")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert told(run) == ["helped"]


async def test_a_forged_handle_is_no_handle(fleet, client, stage):
    keys = fleet.settings.keys
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        submitted = await orchestrator.call("play_long", {"stage": stage.path}, patience_s=0)
        actor = await stage.enters()
        sealed = await client.get(keys.handle(submitted.handle))
        now = time.time()
        record = HandleRecord(
            call_id="x.1.0", run_id="x", tool="add", deadline_unix_s=now, submitted_unix_s=now, principal="mallory"
        )
        for forged in (record.model_dump_json(), b"0" * 64 + record.model_dump_json().encode(), sealed):
            await client.set(keys.handle("forged"), forged, ex=60)
            with pytest.raises(HandleNotFound):
                await orchestrator.task("forged")
        actor.returns("late")
        assert (await orchestrator.task(submitted.handle, wait_s=WAIT_S)).result == Returned(content="late")


async def test_secret_arguments_that_somebody_else_has_put_there_are_not_sent(fleet, client, store):
    keys = fleet.settings.keys
    model = WrittenModel((requesting(("1", "knock", '{"word": "open-sesame"}')), "tool_calls"))
    needs = {"needs_approval": lambda call: call.tool == "knock"}
    async with Orchestrator(model=model, settings=fleet.settings, **needs) as orchestrator:
        run_id = await orchestrator.start("?")
        await until(lambda: parked(store, run_id))
        await client.set(keys.arguments(f"{run_id}.1.0"), '{"word": "x", "times": 1000000}', keepttl=True)
        await orchestrator.approve(f"{run_id}.1.0", Approval(granted=True))
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert "1000000" not in told(run)[0]


async def test_a_conversation_that_was_pointed_elsewhere_begins_with_nothing(fleet, client):
    conversations = Conversations(client, fleet.settings, Seal(fleet.settings))
    adas = await conversations.newest("clerk", "Ada's", tenant="a")
    await conversations.note_begun(adas.next)
    mallorys = await conversations.newest("clerk", "Mallory's", tenant="m")
    for forged in (f"{adas.prefix}:1", await client.get(adas.key)):
        await client.set(mallorys.key, forged, ex=60)
        found = await conversations.newest("clerk", "Mallory's", tenant="m")
        assert (found.prefix != adas.prefix, found.number) == (True, 0)
    assert (await conversations.newest("clerk", "Ada's", tenant="a")).number == 1


async def test_a_run_in_another_models_set_is_given_back_to_its_own(fleet, client, store):
    keys = fleet.settings.keys
    started = machine.STARTED.model_copy(update={"run_id": "misplaced", "model": "of-its-own"})
    await store.begin(started)
    await client.srem(keys.unowned("of-its-own"), "misplaced")
    model = WrittenModel()
    await client.sadd(keys.unowned(model.name), "misplaced")
    async with Orchestrator(model=model, settings=fleet.settings):
        await until(lambda: is_in(client, keys.unowned("of-its-own"), "misplaced"))
    assert model.heard == []
    assert (await store.load("misplaced")).run.state is State.THINKING


async def is_in(client, key, member):
    return await client.sismember(key, member)


async def test_a_run_that_a_newer_version_has_written_to_is_left_to_it(fleet, client, store, monkeypatch):
    monkeypatch.setattr(driver, "GIVE_BACK_S", 0.1)
    keys, model = fleet.settings.keys, WrittenModel()
    stored = await store.begin(machine.STARTED.model_copy(update={"run_id": "newer", "model": model.name}))
    event = b'{"type":"run_dreamt"}'
    seal = Seal(fleet.settings).sign_entry("newer", 2, stored.link.digest_with(event))
    await client.xadd(keys.run("newer"), {"e": event, "s": seal})
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await until(lambda: is_in(client, keys.owned(orchestrator.orchestrator_id), "newer"))
        await until(lambda: is_in(client, keys.unowned(model.name), "newer"))
        with pytest.raises(NewerVersion, match="upgrade"):
            await orchestrator.get("newer")
    assert await client.xlen(keys.run("newer")) == 2
    assert model.heard == []
    await store.delete("newer")
    await client.srem(keys.unowned(model.name), "newer")


class Asked:
    """A reply that never comes; whoever stops waiting for it has to say so twice, as with redis-py at times."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, _messages):
        self.asked.set()
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        raise asyncio.CancelledError


async def test_a_run_that_a_newer_version_goes_on_with_is_left_to_it_in_the_midst_of_a_turn(
    fleet, client, store, monkeypatch
):
    monkeypatch.setattr(driver, "GIVE_BACK_S", 0.1)
    keys, reply = fleet.settings.keys, Asked()
    model = WrittenModel((reply, "stop"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        await asyncio.wait_for(reply.asked.wait(), WAIT_S)
        link = (await store.load(run_id)).link
        event = b'{"type":"run_dreamt"}'
        seal = Seal(fleet.settings).sign_entry(run_id, link.position + 1, link.digest_with(event))
        await client.xadd(keys.run(run_id), {"e": event, "s": seal})
        await client.xadd(keys.replies(orchestrator.orchestrator_id), {"run": run_id})
        await until(lambda: is_in(client, keys.unowned(model.name), run_id))
        assert reply.cancelled == 2
    await store.delete(run_id)
    await client.srem(keys.unowned(model.name), run_id)


async def test_a_run_that_somebody_else_has_ended_is_let_go_of_though_a_cancellation_is_lost(fleet, store):
    reply = Asked()
    async with Orchestrator(model=WrittenModel((reply, "stop")), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        await asyncio.wait_for(reply.asked.wait(), WAIT_S)
        async with Orchestrator(settings=fleet.settings) as other:
            await other.cancel(run_id)
        assert (await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)).state is State.CANCELLED
        assert reply.cancelled == 2
