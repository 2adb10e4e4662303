"""What a person says to a run that is at work: seen once, in its place, whoever works on the run."""

import asyncio
import json
import os
import signal
import sys

import pytest
from conversations import WrittenModel, requesting

from tests.steering.steered import WAIT_S, answers, lone, parked, until
from toolfleet.calls import FailureKind
from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import InvalidOption, RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import MessagesSaid
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point

MORE = "And only owls."
BACK = {"run_in_background": True}


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))), "tool_calls"


def says(text):
    return AssistantMessage(content=text), "stop"


def said_by_users(run):
    return [message.content for message in run.messages if isinstance(message, UserMessage)]


def roles(messages):
    return [message.role for message in messages]


async def test_U2_what_is_said_while_tools_run_is_read_behind_their_results(fleet, stage, observer):
    model = WrittenModel(asks(("study", {"stage": stage.path}), ("add", {"a": 1, "b": 2})), says("owls"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        heard = []
        run_id = await orchestrator.start("?", on_event=heard.append)
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        run = await observer.say(run_id, MORE, by="ada")
        assert ([message.content for message in run.unheard], said_by_users(run)) == ([MORE], ["?"])
        actor.returns("mice and owls")
        run = await orchestrator.wait(run_id)
    assert (run.answer, run.unheard) == ("owls", ())
    assert roles(model.heard[1]) == ["user", "assistant", "tool", "tool", "user"]
    assert said_by_users(run) == ["?", MORE]
    assert [event.messages[0].content for event in heard if event.type == "user_spoke"] == [MORE]
    entries = await observer._services.store.entries(run_id)
    [event] = [entry.event for entry in entries if isinstance(entry.event, MessagesSaid)]
    assert (event.by, event.interrupt) == ("ada", False)


async def test_U2_what_is_said_while_the_model_answers_is_never_lost(fleet, observer):
    async def answers_slowly(_):
        await observer.say(run_id, MORE)
        return AssistantMessage(content="all animals")

    model = WrittenModel((answers_slowly, "stop"), says("owls"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = orchestrator.settings.new_run_id()
        run = await asyncio.wait_for(orchestrator.run("?", run_id=run_id), WAIT_S)
    assert run.answer == "owls"
    assert [message.content for message in run.messages] == ["?", "all animals", MORE, "owls"]
    with pytest.raises(RunNotOpen, match="follow-up"):
        await observer.say(run_id, "too late")


async def test_U2_an_interruption_cancels_what_is_open_and_denies_what_waits_for_a_person(fleet, stage, observer):
    model = WrittenModel(
        asks(("study", {"stage": stage.path}), ("pay", {"amount": 5}), ("research", {"stage": stage.path, **BACK})),
        says("stopped"),
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actors = [await stage.enters(), await stage.enters()]
        await until(fleet, run_id, lambda run: run.awaiting_approval and run.in_background)
        await observer.say(run_id, "Stop!", interrupt=True, by="ada")
        run = await until(fleet, run_id, lambda run: run.state is State.WAITING)
        studied, paid, goes_on = run.calls
        assert studied.result.kind is FailureKind.CANCELLED
        assert (paid.result.kind, paid.approval.by) == (FailureKind.DENIED, "ada")
        assert goes_on.late_result is None
        assert await next(actor for actor in actors if actor.call_id == studied.call_id).leaves() == "cancelled"
        next(actor for actor in actors if actor.call_id == goes_on.call_id).returns("found")
        run = await orchestrator.wait(run_id)
    assert roles(model.heard[1]) == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert (run.state, said_by_users(run)) == (State.DONE, ["?", "Stop!"])


async def test_U2_what_a_reply_asks_for_that_was_interrupted_is_not_called(fleet, stage, observer):
    async def asks_in_vain(_):
        await observer.say(run_id, "Stop!", interrupt=True)
        return asks(("study", {"stage": stage.path}))[0]

    async with Orchestrator(WrittenModel((asks_in_vain, "tool_calls")), settings=fleet.settings) as orchestrator:
        run_id = orchestrator.settings.new_run_id()
        run = await asyncio.wait_for(orchestrator.run("?", run_id=run_id), WAIT_S)
    assert (run.calls[0].result.kind, stage.actors) == (FailureKind.CANCELLED, [])
    assert "was not called" in answers(run, "study")[0]


async def test_U2_a_parked_run_reads_it_with_the_results_and_a_waiting_one_at_once(fleet, stage, observer):
    asked = asks(("study_slowly", {"stage": stage.path}))
    late = asks(("research", {"stage": stage.path, **BACK}))
    model = WrittenModel(asked, late, says("it runs"), says("owls"), says("all of it"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await until(fleet, run_id, parked)
        assert (await observer.say(run_id, MORE)).state is State.PARKED
        actor.returns("slowly")
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.state is State.WAITING)
        await observer.say(run_id, "Well?")
        run = await until(fleet, run_id, lambda run: run.state is State.WAITING and said_by_users(run)[-1] == "Well?")
        actor.returns("late")
        run = await orchestrator.wait(run_id)
    assert roles(model.heard[1]) == ["user", "assistant", "tool", "user"]
    assert roles(model.heard[3])[-3:] == ["tool", "assistant", "user"]
    assert run.answer == "all of it"


async def test_U2_two_orchestrators_and_a_key_say_it_once(fleet, stage, observer):
    model = WrittenModel(asks(("study", {"stage": stage.path})))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        senders = [orchestrator, observer] * 4
        await asyncio.gather(*(each.say(run_id, MORE, idempotency_key="k") for each in senders))
        await asyncio.gather(*(each.say(run_id, f"{n}") for n, each in enumerate(senders)))
        with pytest.raises(InvalidOption, match="used"):
            await observer.say(run_id, "something else", idempotency_key="k")
        for nothing in ("", [], [AssistantMessage(content="I am the model")]):
            with pytest.raises(InvalidOption):
                await observer.say(run_id, nothing)
        with pytest.raises(RunNotFound):
            await observer.say("0000000000000000", MORE)
        actor.returns("done")
        run = await orchestrator.wait(run_id)
        assert (await observer.say(run_id, MORE, idempotency_key="k")).state is State.DONE
    assert sorted(said_by_users(run)) == sorted(["?", MORE, *map(str, range(8))])


async def test_U2_a_model_that_does_not_listen_is_told_only_so_much(fleet, stage, observer):
    async with Orchestrator(WrittenModel(asks(("study", {"stage": stage.path}))), settings=fleet.settings) as fleet_:
        run_id = await fleet_.start("?")
        actor = await stage.enters()
        await observer.say(run_id, [UserMessage(content="x" * 100_000)] * 100)
        with pytest.raises(RunNotOpen, match="has not read yet"):
            await observer.say(run_id, MORE)
        actor.returns("done")
        assert len(said_by_users(await fleet_.wait(run_id))) == 101


@pytest.mark.parametrize("where", ["nowhere", Point.GATHERED])
async def test_U2_what_was_told_to_a_killed_orchestrator_is_seen_once_by_the_next(
    fleet, stage, rehearsal, model, observer, where
):
    question = f"call study {json.dumps({'stage': stage.path})}"
    async with lone(fleet, rehearsal.base_url, question, where) as (process, run_id):
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        if where == "nowhere":
            process.send_signal(signal.SIGSTOP)
        await observer.say(run_id, "quoted by the rehearsal", idempotency_key="k")
        actor.returns("done")
        if where == "nowhere":
            process.kill()
        await process.wait()
    async with Orchestrator(model, settings=fleet.settings) as second:
        await second.say(run_id, "quoted by the rehearsal", idempotency_key="k")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert said_by_users(run)[1:] == ["quoted by the rehearsal"]
    assert roles(run.messages) == ["user", "assistant", "tool", "user", "assistant"]
    assert len(stage.actors) == 1


async def test_U2_what_a_run_that_was_cancelled_has_not_read_is_read_when_it_goes_on(fleet, stage, observer):
    model = WrittenModel(asks(("study", {"stage": stage.path})), says("owls"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        await stage.enters()
        await observer.say(run_id, MORE)
        run = await observer.cancel(run_id)
        assert (run.unheard, said_by_users(run)) == ((), ["?", MORE])
        await observer.resume(run_id)
        run = await orchestrator.wait(run_id)
    assert run.answer == "owls"
    assert roles(model.heard[1]) == ["user", "assistant", "tool", "user"]


async def test_U2_over_http_it_is_said_once_for_each_key_and_an_ended_run_goes_on_or_refuses(api, stage):
    run_id = await api.begin(f"call study {json.dumps({'stage': stage.path})}")
    actor = await stage.enters()
    url, keyed = f"/v1/runs/{run_id}/messages", {"idempotency-key": "k"}
    for _ in range(2):
        answer = await api.client.post(url, json={"question": MORE}, headers=keyed)
        assert (answer.status_code, [each["content"] for each in answer.json()["unheard"]]) == (202, [MORE])
    assert (await api.client.post(url, json={"question": "other"}, headers=keyed)).status_code in {409, 422}
    assert (await api.stranger.post(url, json={"question": MORE})).status_code == 401
    assert (await api.client.post(url, json={"messages": [], "interrupt": True})).status_code == 422
    actor.returns("done")
    run = await api.ended(run_id)
    assert [message["content"] for message in run["messages"] if message["role"] == "user"][1:] == [MORE]
    told = [(kind, data) for _, kind, data in await api.events(run_id) if kind.startswith("messages_")]
    assert [kind for kind, _ in told] == ["messages_said", "messages_heard"]
    refused = await api.client.post(url, json={"question": MORE, "if_ended": "refuse"})
    assert (refused.status_code, "follow-up" in refused.json()["detail"]) == (409, True)
    assert (await api.client.post(url, json={"question": "And now?"})).status_code == 202


async def test_U2_a_person_says_it_at_a_terminal(fleet, stage):
    async def toolfleet(*words):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **fleet.settings.as_environment()},
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    async with Orchestrator(WrittenModel(asks(("study", {"stage": stage.path}))), settings=fleet.settings) as there:
        run_id = await there.start("?")
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        code, said = await toolfleet("runs", "say", run_id, MORE, "--interrupt")
        assert (code, f"run {run_id} reads it next" in said) == (0, True), said
        assert await actor.leaves() == "cancelled"
        assert said_by_users(await there.wait(run_id)) == ["?", MORE]
    code, said = await toolfleet("runs", "say", run_id, MORE)
    assert (code, "follow-up" in said) == (1, True), said
