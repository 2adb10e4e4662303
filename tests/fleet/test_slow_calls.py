"""Calls that outlive a turn: waited for under their own id, or handed to the model as a task that it asks about."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest
from conversations import WrittenModel, rehearsed, requesting
from fleets import fleet_of
from post import Post
from processes import kill, replenish, worker_of

from toolfleet.calls import FailureKind, Progress, Returned, Submitted
from toolfleet.connections import connect_async
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallEnded, CallProgressed, CallSubmitted


@pytest.fixture(scope="module")
def fleet():
    with fleet_of("--concurrency", "2", pools={"io": 1, "long": 1}, lease_s=3, heartbeat_s=0.5) as running:
        yield running


@pytest.fixture
async def rehearsal(fleet):
    async with rehearsed(fleet.settings) as orchestrator:
        yield orchestrator


@pytest.fixture
async def converse(fleet):
    """A run with replies that look at the conversation so far; the run and what the model heard."""

    async def conversed(*replies, **options):
        model = WrittenModel(*replies)
        async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
            return await orchestrator.run("?", slow="handle", **options)

    return conversed


def answers(run, name):
    return [message.content for message in run.messages if isinstance(message, ToolMessage) and message.name == name]


def ticket(messages):
    """The task_id of the first submitted call."""
    return next(
        json.loads(message.content)["task_id"]
        for message in messages
        if isinstance(message, ToolMessage) and '"submitted"' in message.content
    )


def asks_for(name, **arguments):
    """A reply that asks about the submitted task."""

    def reply(messages):
        return requesting(("ask", name, json.dumps({"task_id": ticket(messages), **arguments})))

    return reply


def about(messages, name, **arguments):
    """A request about all submitted tasks."""
    tasks = [
        json.loads(message.content)["task_id"]
        for message in messages
        if isinstance(message, ToolMessage) and '"submitted"' in message.content
    ]
    return requesting(("ask", name, json.dumps({"task_ids": tasks, **arguments})))


def submits(tool, arguments):
    return requesting(("slow", tool, json.dumps(arguments)))


# --- waited for -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def progress_of(orchestrator, question, **options):
    """All events of a run, once it has ended, and a way to have an actor's progress heard."""
    events, words = [], asyncio.Queue()

    async def watch():
        async for event in orchestrator.stream(question, **options):
            events.append(event)
            if isinstance(event, CallProgressed):
                words.put_nowait((event.fraction, event.message))

    async def tells(actor, *word):
        # Again and again: only the newest is told, and none while a run goes to rest.
        told = None
        while told != word:
            actor.progresses(*word)
            with suppress(TimeoutError):
                told = await asyncio.wait_for(words.get(), 0.5)

    watching = asyncio.create_task(watch())
    yield events, tells
    await watching


async def test_the_last_that_a_tool_says_is_told_before_its_result(fleet):
    async with Post(fleet.settings) as post:
        post.send(post.call("long_job", {"steps": 2}), queue="long")  # ends before the second is due to be told
        assert (await post.progress())[-1] == Progress(fraction=1, message="step 2")


async def test_a_run_that_waits_gathers_the_slow_call_under_its_own_id(rehearsal, stage):
    question = f'call play_long {{"stage": "{stage.path}"}} and call echo {{"value": "quick"}}'
    async with progress_of(rehearsal, question, slow="wait") as (events, tells):
        actor = await stage.enters()
        await tells(actor, 0.25, "begun")
        await tells(actor, 0.75, "nearly there")
        actor.returns({"steps": 12})
    run = events[-1].run
    assert answers(run, "play_long") == ['{"steps":12}']
    assert run.calls[0].result == Returned(content='{"steps":12}')
    progress = [event for event in events if isinstance(event, CallProgressed)]
    assert {event.call_id for event in progress} == {f"{run.run_id}.1.0"}
    fractions = [event.fraction for event in progress]
    assert fractions == sorted(fractions)
    assert [event.call_id for event in events if isinstance(event, CallEnded)].count(f"{run.run_id}.1.0") == 1


async def test_progress_of_a_plain_function_is_seen_while_it_blocks_its_process(rehearsal, stage):
    question = f'call play_long_in_process {{"stage": "{stage.path}"}}'
    async with progress_of(rehearsal, question) as (events, tells):
        actor = await stage.enters()
        await tells(actor, 0.5, "half way")
        actor.returns()
    assert events[-1].run.state is State.DONE


# --- handed to the model --------------------------------------------------------------------------------------------


async def test_L1_a_model_with_a_handle_fetches_the_result_when_it_wants_it(rehearsal):
    events = [event async for event in rehearsal.stream('call long_job {"steps": 3} then fetch', slow="handle")]
    run = events[-1].run
    [submitted] = answers(run, "long_job")
    [event] = [event for event in events if isinstance(event, CallSubmitted)]
    told = json.loads(submitted)
    assert told["status"] == "submitted"
    assert told["task_id"] == event.handle
    assert "Ask for its result with this task_id" in told["message"]
    assert told["poll_after_s"] > 0
    fetched = json.loads(answers(run, "task_result")[-1])
    assert (fetched["status"], fetched["tool"], fetched["result"]) == ("succeeded", "long_job", {"steps": 3})
    assert isinstance(run.calls[0].result, Submitted)
    assert run.calls[0].late_result == Returned(content='{"steps":3}')
    assert run.state is State.DONE
    assert len(answers(run, "task_result")) == 1


async def test_an_unfetched_result_is_delivered_exactly_once_before_the_run_ends(converse):
    run = await converse(
        (submits("long_job", {"steps": 4}), "tool_calls"), (AssistantMessage(content="I will not wait."), "stop")
    )
    [delivered] = answers(run, "task_result")
    assert json.loads(delivered)["result"] == {"steps": 4}
    assert run.state is State.DONE
    assert run.calls[0].late_result == Returned(content='{"steps":4}')
    assert [message.content for message in run.messages if isinstance(message, AssistantMessage)][-1] == "done"
    # As if the model had fetched it: each message still follows a request for it.
    requested = [call.id for message in run.messages for call in getattr(message, "tool_calls", ())]
    assert requested == [message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)]


async def test_L1_running_is_told_with_progress_and_without_waiting(converse, stage):
    heard = []

    async def ask_at_half_time(messages):
        actor = await stage.enters()
        actor.progresses(0.5, "half way")
        heard.append(actor)
        return asks_for("task_result", block=True, timeout_ms=1000)(messages)

    async def let_it_end(messages):
        heard[0].returns("all of it")
        return asks_for("task_result")(messages)

    run = await converse(
        (submits("play_long", {"stage": stage.path}), "tool_calls"),
        (ask_at_half_time, "tool_calls"),
        (asks_for("task_result", block=False), "tool_calls"),
        (let_it_end, "tool_calls"),
    )
    blocked, unblocked, last = map(json.loads, answers(run, "task_result"))
    assert blocked["status"] == unblocked["status"] == "running"
    assert blocked["progress"]["fraction"] == 0.5
    assert blocked["progress"]["message"] == "half way"
    assert blocked["age_s"] >= 1
    assert "result" not in blocked
    assert (last["status"], last["result"]) == ("succeeded", "all of it")


async def test_queued_is_told_apart_from_running_and_a_cancelled_queued_task_never_starts(converse, stage):
    async def once_both_slots_are_taken(messages):
        [await stage.enters() for _ in range(2)]
        queued = json.loads([message.content for message in messages if isinstance(message, ToolMessage)][2])["task_id"]
        return requesting(
            ("ask", "task_result", json.dumps({"task_id": queued, "block": False})),
            ("stop", "task_cancel", json.dumps({"task_id": queued})),
        )

    async def let_the_others_end(messages):
        for actor in stage.actors:
            actor.returns()
        return AssistantMessage(content="enough")

    given = json.dumps({"stage": stage.path})
    run = await converse(
        (requesting(*((str(n), "play_long", given) for n in range(3))), "tool_calls"),
        (once_both_slots_are_taken, "tool_calls"),
        (let_the_others_end, "stop"),
    )
    assert json.loads(answers(run, "task_result")[0])["status"] == "queued"
    assert json.loads(answers(run, "task_cancel")[0])["status"] == "cancelled"
    assert run.calls[2].late_result.kind is FailureKind.CANCELLED
    assert run.calls[2].call_id not in {actor.call_id for actor in stage.actors}
    assert run.state is State.DONE


async def test_a_queued_task_is_told_its_place_and_a_running_one_its_attempt(converse, stage):
    async def once_both_slots_are_taken(messages):
        [await stage.enters() for _ in range(2)]
        return about(messages, "task_result", block=False)

    def stop_all(messages):
        return about(messages, "task_cancel")

    given = json.dumps({"stage": stage.path})
    run = await converse(
        (requesting(*((str(n), "play_long", given) for n in range(4))), "tool_calls"),
        (once_both_slots_are_taken, "tool_calls"),
        (stop_all, "tool_calls"),
    )
    told = json.loads(answers(run, "task_result")[0])["tasks"]
    assert [(task["status"], task.get("queue_position"), task.get("attempt")) for task in told] == [
        ("running", None, 1),
        ("running", None, 1),
        ("queued", 0, None),
        ("queued", 1, None),
    ]
    stopped = json.loads(answers(run, "task_cancel")[0])["tasks"]
    assert {task["status"] for task in stopped} == {"cancelled"}
    assert {call.late_result.kind for call in run.calls[:4]} == {FailureKind.CANCELLED}
    assert len(stage.actors) == 2


async def test_any_of_several_tasks_ends_the_wait_and_all_of_them_are_fetched(converse, stage):
    async def let_one_end(messages):
        actors = [await stage.enters() for _ in range(2)]
        next(actor for actor in actors if actor.call_id.endswith(".1")).returns("second")
        return about(messages, "task_result", wait_for="any")

    def let_the_other_end(messages):
        next(actor for actor in stage.actors if actor.call_id.endswith(".0")).returns("first")
        return about(messages, "task_result", wait_for="all")

    given = json.dumps({"stage": stage.path})
    run = await converse(
        (requesting(*((str(n), "play_long", given) for n in range(2))), "tool_calls"),
        (let_one_end, "tool_calls"),
        (let_the_other_end, "tool_calls"),
    )
    any_of, all_of = (json.loads(content)["tasks"] for content in answers(run, "task_result"))
    assert [task["status"] for task in any_of] == ["running", "succeeded"]
    assert [task["result"] for task in all_of] == ["first", "second"]
    assert [call.late_result for call in run.calls[:2]] == [Returned(content="first"), Returned(content="second")]


async def test_a_model_that_asks_too_soon_gets_the_same_answer_with_a_hint(converse, stage):
    async def once_it_runs(messages):
        (await stage.enters()).progresses(0.5, "half way")
        return asks_for("task_result", block=False)(messages)

    async def once_it_has_ended(messages):
        stage.actors[0].returns("done")
        await stage.actors[0].leaves()
        return asks_for("task_result")(messages)

    run = await converse(
        (submits("play_long", {"stage": stage.path}), "tool_calls"),
        (once_it_runs, "tool_calls"),
        (asks_for("task_result", block=False), "tool_calls"),
        (once_it_has_ended, "tool_calls"),
        (asks_for("task_result", block=False), "tool_calls"),
    )
    first, again, ended, afterwards = map(json.loads, answers(run, "task_result"))
    assert "message" not in first
    assert again["status"] == first["status"] == "running"
    assert "use block=true to wait" in again["message"]
    assert again["poll_after_s"] <= first["poll_after_s"]
    # What the run remembers outlives what the store keeps.
    assert (ended["result"], afterwards["result"]) == ("done", "done")


async def test_a_task_whose_record_has_ended_is_still_its_runs_own(fleet, converse):
    async def once_the_record_is_gone(messages):
        async with connect_async(fleet.settings) as client:
            await client.delete(fleet.settings.keys.handle(ticket(messages)))
        return asks_for("task_result")(messages)

    run = await converse(
        (submits("long_job", {"steps": 1}), "tool_calls"), (once_the_record_is_gone, "tool_calls"), timeout_s=60
    )
    assert json.loads(answers(run, "task_result")[0])["status"] == "succeeded"


async def test_a_running_task_is_cancelled_by_the_model(converse, stage):
    async def once_it_runs(messages):
        await stage.enters()
        return asks_for("task_cancel")(messages)

    run = await converse(
        (submits("play_long", {"stage": stage.path}), "tool_calls"),
        (once_it_runs, "tool_calls"),
        (asks_for("task_result"), "tool_calls"),
    )
    assert json.loads(answers(run, "task_cancel")[0])["status"] == "cancelled"
    assert json.loads(answers(run, "task_result")[0])["status"] == "cancelled"
    assert await stage.actors[0].leaves() == ""
    assert len(stage.actors) == 1


async def test_L1_failed_is_told_with_its_error(converse, stage):
    async def fails_once_it_is_submitted(messages):
        # Not before: a call that fails within its patience has its error in its own message.
        (await stage.enters()).fails("no luck")
        return asks_for("task_result")(messages)

    run = await converse(
        (submits("play_long", {"stage": stage.path}), "tool_calls"), (fails_once_it_is_submitted, "tool_calls")
    )
    told = json.loads(answers(run, "task_result")[0])
    assert (told["status"], told["error"]) == ("failed", "no luck")


async def test_L1_an_unknown_task_and_one_of_another_run_look_the_same(converse):
    first = await converse((submits("long_job", {"steps": 1}), "tool_calls"), (asks_for("task_result"), "tool_calls"))
    foreign = ticket(first.messages)
    second = await converse(
        (
            requesting(
                *(
                    (f"{name}-{task}", name, json.dumps({"task_id": task}))
                    for name in ("task_result", "task_cancel")
                    for task in (foreign, "made-up")
                )
            ),
            "tool_calls",
        ),
    )
    told = [json.loads(content) for content in answers(second, "task_result") + answers(second, "task_cancel")]
    assert [answer["status"] for answer in told] == ["unknown"] * 4
    assert {answer["message"] for answer in told} == {"this run has no task with this id; check the task_id"}


async def test_a_built_in_tool_called_wrongly_says_what_is_wrong(converse):
    wrong = {
        "task_id is missing": ("task_result", "{}"),
        "less than or equal to 600000": ("task_result", '{"task_id": "x", "timeout_ms": 600001}'),
        "greater than or equal to 0": ("task_result", '{"task_id": "x", "timeout_ms": -1}'),
        "task_ids is empty": ("task_result", '{"task_ids": []}'),
        "not both": ("task_result", '{"task_id": "x", "task_ids": ["y"]}'),
        "'any' or 'all'": ("task_result", '{"task_ids": ["x"], "wait_for": "some"}'),
        "task_cancel": ("task_cancel", "nonsense"),
    }
    requests = [(str(n), name, arguments) for n, (name, arguments) in enumerate(wrong.values())]
    run = await converse((requesting(*requests), "tool_calls"))
    for said, call in zip(wrong, run.calls, strict=True):
        assert call.result.kind is FailureKind.BAD_ARGUMENTS
        assert said in call.result.message


async def test_built_in_tools_are_not_offered_to_a_run_that_waits(rehearsal):
    run = await rehearsal.run('call task_result {"task_id": "x"}', slow="wait")
    assert run.calls[0].result.kind is FailureKind.UNKNOWN_TOOL


async def test_a_handle_outlives_the_worker_that_runs_its_call(fleet, converse, stage):
    async def once_its_worker_is_lost(messages):
        first = await stage.enters()
        kill(worker_of(fleet, first.pid))
        await asyncio.to_thread(replenish, fleet, long=1)
        (await stage.enters()).returns("by another")
        return asks_for("task_result")(messages)

    run = await converse(
        (submits("play_long", {"stage": stage.path}), "tool_calls"), (once_its_worker_is_lost, "tool_calls")
    )
    assert json.loads(answers(run, "task_result")[0])["result"] == "by another"


async def test_everything_about_handles_has_its_end(fleet, converse):
    await converse((submits("long_job", {"steps": 1}), "tool_calls"))
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        for pattern in (keys.handle("*"), keys.progress("*"), keys.run("*")):
            found = await client.keys(pattern)
            assert found
            assert min([await client.ttl(key) for key in found]) > 0
