"""What happens to a call that takes longer than its patience, on real workers: it goes on, and nothing begins anew."""

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking

from toolfleet.calls import Failed, FailureKind, Returned, Submitted
from toolfleet.connections import connect_async
from toolfleet.jobs import complete
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import HandleNotFound, InvalidOption
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.wire import Seal

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    modules = ["fleet_tools", "patience_tools"]
    with LocalFleet(modules, pools={"io": 1}, environment=HERE, lease_s=3, heartbeat_s=0.5) as running:
        yield running


def with_model(fleet, *replies):
    return Orchestrator(model=WrittenModel(*replies), settings=fleet.settings)


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))), "tool_calls"


def answers(run, name):
    return [message.content for message in run.messages if isinstance(message, ToolMessage) and message.name == name]


async def until(fleet, run_id, condition):
    """The run once it is as a test wants it: looked at whenever something was written to it."""
    key = fleet.settings.keys.run(run_id)
    async with (
        asyncio.timeout(WAIT_S),
        connect_async(fleet.settings) as client,
        Orchestrator(settings=fleet.settings) as observer,
    ):
        while True:
            [(newest, _)] = await client.xrevrange(key, count=1)
            if condition(run := await observer.get(run_id)):
                return run
            await client.xread({key: newest}, block=5000)


def parked(run):
    return run.state is State.PARKED


# --- the running call becomes slow ----------------------------------------------------------------------------------


async def test_a_tool_out_of_patience_parks_its_run_and_is_not_begun_again(fleet, stage):
    async with with_model(fleet, asks(("play_impatiently", {"stage": stage.path}))) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        run = await until(fleet, run_id, parked)
        assert run.calls[0].handle
        assert orchestrator.working == 0
        actor.returns("at last")
        run = await orchestrator.wait(run_id)
    assert run.state is State.DONE
    assert answers(run, "play_impatiently") == ["at last"]
    assert len(stage.actors) == 1


async def test_the_patience_of_a_run_counts_more_than_that_of_its_tools(fleet, stage):
    async with with_model(fleet, asks(("play_patiently", {"stage": stage.path}))) as orchestrator:
        run_id = await orchestrator.start("?", patience_s=0.1)
        actor = await stage.enters()
        await until(fleet, run_id, parked)
        actor.returns("one")
        assert answers(await orchestrator.wait(run_id), "play_patiently") == ["one"]
    assert len(stage.actors) == 1


async def test_a_promoted_call_is_told_as_running_though_its_tool_reports_no_progress(fleet, stage):
    heard = {}

    def ask(messages):
        heard["task"] = json.loads(messages[-1].content)["task_id"]
        return requesting(("q", "task_result", json.dumps({"task_id": heard["task"], "block": False})))

    async def let_it_end(messages):
        heard["status"] = json.loads(messages[-1].content)
        stage.actors[0].returns("done at last")
        return requesting(("r", "task_result", json.dumps({"task_id": heard["task"]})))

    async with with_model(
        fleet, asks(("play_impatiently", {"stage": stage.path})), (ask, "tool_calls"), (let_it_end, "tool_calls")
    ) as orchestrator:
        run = await orchestrator.run("?", slow="handle")
    assert (heard["status"]["status"], heard["status"]["attempt"]) == ("running", 1)
    assert "queue_position" not in heard["status"]
    assert json.loads(answers(run, "task_result")[-1])["result"] == "done at last"
    assert len(stage.actors) == 1


@pytest.mark.parametrize("slow", ["wait", "handle"])
async def test_one_batch_returns_goes_on_and_waits_for_approval(fleet, stage, slow):
    asked = asks(
        ("add", {"a": 1, "b": 2}), ("play_impatiently", {"stage": stage.path}), ("pay", {"amount": 7}), ("nope", {})
    )
    async with with_model(fleet, asked) as orchestrator:
        run_id = await orchestrator.start("?", slow=slow)
        actor = await stage.enters()
        run = await until(fleet, run_id, parked)
        quick, slow_call, approved, unknown = run.calls
        assert quick.result == Returned(content="3")
        assert unknown.result.kind is FailureKind.UNKNOWN_TOOL
        assert [call.call_id for call in run.awaiting_approval] == [approved.call_id]
        assert isinstance(slow_call.result, Submitted) if slow == "handle" else slow_call.handle
        await orchestrator.approve(approved.call_id, Approval(granted=True))
        actor.returns("slowly")
        run = await orchestrator.wait(run_id)
    assert run.state is State.DONE
    assert answers(run, "pay") == ["paid 7"]
    results = [call.late_result or call.result for call in run.calls]
    assert results[:3] == [Returned(content="3"), Returned(content="slowly"), Returned(content="paid 7")]
    first = [message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)][:4]
    assert first == ["c0", "c1", "c2", "c3"]
    assert len(stage.actors) == 1


async def test_a_job_that_was_submitted_elsewhere_ends_patience(fleet):
    async with with_model(fleet, asks(("elsewhere", {"job": "42"}))) as orchestrator:
        run_id = await orchestrator.start("?")
        run = await until(fleet, run_id, parked)
        [call] = run.calls
        status = await orchestrator.task(call.handle)
        assert (status.state, status.result) == ("submitted", None)
        async with connect_async(fleet.settings) as client:
            await complete(client, fleet.settings, Seal(fleet.settings), call.call_id, Returned(content="there"))
        assert answers(await orchestrator.wait(run_id), "elsewhere") == ["there"]


# --- approval -------------------------------------------------------------------------------------------------------


async def test_P5_a_denied_call_never_starts_and_the_model_reads_why(fleet, stage):
    async with with_model(fleet, asks(("play_with_approval", {"stage": stage.path}))) as orchestrator:
        run_id = await orchestrator.start("?")
        run = await until(fleet, run_id, parked)
        await orchestrator.approve(run.calls[0].call_id, Approval(granted=False, reason="too dear"))
        run = await orchestrator.wait(run_id)
    assert (run.state, run.calls[0].result.kind) == (State.DONE, FailureKind.DENIED)
    assert "too dear" in answers(run, "play_with_approval")[0]
    assert stage.actors == []


async def test_P5_a_call_approved_with_other_arguments_runs_with_those(fleet):
    async with with_model(fleet, asks(("pay", {"amount": 1000}))) as orchestrator:
        run_id = await orchestrator.start("?")
        run = await until(fleet, run_id, parked)
        approval = Approval(granted=True, arguments=json.dumps({"amount": 10}))
        await orchestrator.approve(run.calls[0].call_id, approval)
        assert answers(await orchestrator.wait(run_id), "pay") == ["paid 10"]


@pytest.mark.parametrize("granted", [True, False])
async def test_P5_a_decision_about_one_call_may_come_while_another_that_waited_runs(fleet, stage, granted):
    asked = asks(("play_with_approval", {"stage": stage.path}), ("pay", {"amount": 5}))
    async with with_model(fleet, asked) as orchestrator:
        run_id = await orchestrator.start("?")
        played, paid = (await until(fleet, run_id, parked)).awaiting_approval
        await orchestrator.approve(played.call_id, Approval(granted=True))
        actor = await stage.enters()
        await orchestrator.approve(paid.call_id, Approval(granted=granted, reason="no"))
        actor.returns("played")
        run = await orchestrator.wait(run_id)
    assert (run.state, run.calls[0].result) == (State.DONE, Returned(content="played"))
    assert answers(run, "pay") == (["paid 5"] if granted else [run.calls[1].result.message])
    assert len(stage.actors) == 1


async def test_P5_an_open_approval_outlives_its_orchestrator(fleet):
    async with with_model(fleet, asks(("pay", {"amount": 3}))) as first:
        run_id = await first.start("?")
        run = await until(fleet, run_id, parked)
    async with Orchestrator(settings=fleet.settings) as nobody:
        await nobody.approve(run.calls[0].call_id, Approval(granted=True))
    async with with_model(fleet, (AssistantMessage(content="thanks"), "stop")) as second:
        run = await second.wait(run_id)
    assert (run.answer, answers(run, "pay")) == ("thanks", ["paid 3"])


async def test_P5_a_caller_with_a_loop_of_its_own_approves_by_id(orchestrator):
    asked = asking(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    paid, unpaid = await orchestrator.execute(asked, approved={asked.tool_calls[0].id})
    assert paid.content == "paid 1"
    assert unpaid.is_error
    assert "approv" in unpaid.content


# --- one call, without a model --------------------------------------------------------------------------------------


async def test_a_single_call_returns_or_fails(orchestrator):
    assert await orchestrator.call("add", {"a": 2, "b": 3}) == Returned(content="5")
    assert await orchestrator.call("pay", '{"amount": 4}') == Returned(content="paid 4")
    failed = await orchestrator.call("add", {"a": 2})
    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.BAD_ARGUMENTS


async def test_a_single_call_out_of_patience_is_a_handle_that_is_waited_for(orchestrator, stage):
    submitted = await orchestrator.call("play_once", {"stage": stage.path}, patience_s=0.1)
    assert isinstance(submitted, Submitted)
    actor = await stage.enters()
    running = await orchestrator.task(submitted.handle)
    assert (running.state, running.attempt) == ("running", 1)
    waiting = asyncio.create_task(orchestrator.task(submitted.handle, wait_s=WAIT_S))
    actor.returns("now")
    ended = await waiting
    assert (ended.state, ended.result) == ("succeeded", Returned(content="now"))
    assert len(stage.actors) == 1


async def test_a_single_call_is_cancelled_by_its_handle_from_another_orchestrator(fleet, orchestrator, stage):
    submitted = await orchestrator.call("play_once", {"stage": stage.path}, patience_s=0)
    actor = await stage.enters()
    async with Orchestrator(settings=fleet.settings) as another:
        assert (await another.cancel_task(submitted.handle)).state == "cancelled"
    assert await actor.leaves() == "cancelled"


async def test_a_handle_that_was_never_given_out_is_not_found(orchestrator):
    with pytest.raises(HandleNotFound):
        await orchestrator.task("made-up")
    with pytest.raises(HandleNotFound):
        await orchestrator.cancel_task("made-up")


# --- what cannot be meant -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("patience_s", -1, "negative"),
        ("patience_s", float("nan"), "patience_s"),
        ("timeout_s", 0, "a deadline in the past"),
        ("timeout_s", -5, "a deadline in the past"),
        ("max_turns", 0, "max_turns"),
        ("keep_s", 0, "keep_s"),
        ("slow", "maybe", "slow"),
    ],
)
async def test_an_option_that_cannot_be_meant_is_named(fleet, option, value, said):
    async with with_model(fleet) as orchestrator:
        with pytest.raises(InvalidOption, match=said):
            await orchestrator.start("?", **{option: value})


async def test_a_single_call_with_an_impossible_option_is_refused(orchestrator):
    with pytest.raises(InvalidOption, match="patience_s"):
        await orchestrator.call("add", {"a": 1, "b": 1}, patience_s=-1)
    with pytest.raises(InvalidOption, match="deadline in the past"):
        await orchestrator.call("add", {"a": 1, "b": 1}, timeout_s=0)
