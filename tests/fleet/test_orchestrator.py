"""Runs and batches end to end: one message for each call whatever happens, and a store that tells the same story."""

import asyncio
import json

import pytest
from conversations import WrittenModel, rehearsed, requesting
from fleets import asking, fleet_of

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.connections import connect_async
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, ToolMessage, UserMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import OrchestratorClosed, RunNotFound, UnknownTool
from toolfleet.orchestrator.models.rehearsal.faults import Dialect
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallEnded, CallsRequested, CallStarted, RunBegan, RunEnded, TextArrived
from toolfleet.wire import Seal


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}, max_message_bytes=65536) as running:
        yield running


@pytest.fixture
async def rehearsal(fleet):
    async with rehearsed(fleet.settings) as orchestrator:
        yield orchestrator


def contents(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


# --- runs -----------------------------------------------------------------------------------------------------------


async def test_a_run_takes_turns_until_the_model_answers(rehearsal):
    run = await rehearsal.run('call add {"a": 1, "b": 2} and call echo {"value": "x"} then call add {"a": 3, "b": 4}')
    assert (run.state, run.turn) == (State.DONE, 3)
    assert contents(run) == ["3", "x", "7"]
    assert run.answer == run.messages[-1].content
    assert "add: 7" in run.answer
    assert [call.result for call in run.calls] == [Returned(content=content) for content in ["3", "x", "7"]]
    assert run.usage.input_tokens > 0
    assert run.usage.output_tokens > 0


async def test_the_store_gives_back_the_run_that_was_returned(rehearsal, store):
    run = await rehearsal.run('call add {"a": 1, "b": 2} and call gone {}', context={"tenant": "acme"})
    assert (await store.load(run.run_id)).run == run
    with pytest.raises(RunNotFound, match="no run nobody"):
        await store.load("nobody")


@pytest.mark.parametrize("ids", ["unique", "missing", "doubled"])
async def test_B1_identical_calls_each_run_and_are_matched_whatever_ids_the_provider_gives(fleet, ids):
    async with rehearsed(fleet.settings, dialect=Dialect(ids=ids)) as orchestrator:
        run = await orchestrator.run('call who_am_i {} and call who_am_i {} and call echo {"value": "x"}')
    first, second, third = contents(run)
    call_ids = [json.loads(content)["call_id"] for content in (first, second)]
    assert call_ids == [f"{run.run_id}.1.0", f"{run.run_id}.1.1"]
    assert third == "x"
    asked = next(message for message in run.messages if isinstance(message, AssistantMessage))
    answered = [message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)]
    assert [request.id for request in asked.tool_calls] == answered
    assert len(set(answered)) == 3


async def test_a_call_that_cannot_run_is_answered_and_its_siblings_run(rehearsal):
    run = await rehearsal.run('call ecko {} and call add `{"a": nonsense` and call add {} and call echo {"value": "x"}')
    unknown, broken, incomplete, fine = contents(run)
    assert unknown == "There is no tool 'ecko'. Did you mean echo?"
    assert "add" in broken
    assert "a" in incomplete
    assert fine == "x"
    assert run.state is State.DONE
    kinds = [call.result.kind for call in run.calls if isinstance(call.result, Failed)]
    assert kinds == [FailureKind.UNKNOWN_TOOL, FailureKind.BAD_ARGUMENTS, FailureKind.BAD_ARGUMENTS]


async def test_only_the_named_tools_are_offered(rehearsal):
    run = await rehearsal.run('call echo {"value": 1} and call add {"a": 1, "b": 1}', tools=["echo"])
    assert contents(run)[0] == "1"
    assert contents(run)[1].startswith("There is no tool 'add'.")


async def test_a_run_with_a_tool_that_nobody_serves_does_not_begin(rehearsal):
    with pytest.raises(UnknownTool, match=r"no live worker serves telepathy; the fleet offers add, "):
        await rehearsal.run("hello", tools=["echo", "telepathy"])


async def test_the_callers_context_reaches_tools_and_never_the_model(fleet):
    model = WrittenModel((requesting(("1", "who_am_i", "{}")), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("who?", context={"secret": "tenant-42"})
    assert json.loads(contents(run)[0])["context"] == {"secret": "tenant-42"}
    assert "tenant-42" not in str(model.heard[0])


async def test_events_come_in_the_order_in_which_things_happened(rehearsal):
    events = [
        event async for event in rehearsal.stream('say "Wait." call echo {"value": 1} and call add {"a":1,"b":1}')
    ]
    kinds = [type(event) for event in events]
    assert kinds[0] is RunBegan
    assert kinds[-1] is RunEnded
    assert kinds.index(TextArrived) < kinds.index(CallsRequested) < kinds.index(CallStarted) < kinds.index(CallEnded)
    assert [kinds.count(kind) for kind in (RunBegan, CallsRequested, CallStarted, CallEnded, RunEnded)] == [
        1,
        1,
        2,
        2,
        1,
    ]
    after_calls = events[len(kinds) - kinds[::-1].index(CallEnded) :]
    answer = "".join(event.text for event in after_calls if isinstance(event, TextArrived))
    assert answer == events[-1].run.answer


async def test_a_run_fails_with_a_stored_reason_when_the_model_refuses(fleet, store):
    async with rehearsed(fleet.settings, api_key="wrong") as orchestrator:
        run = await orchestrator.run('call echo {"value": 1}')
    assert run.state is State.FAILED
    assert "401" in run.reason
    assert "wrong" not in run.reason.replace("wrong key", "")
    assert (await store.load(run.run_id)).run == run


async def test_B7_a_run_ends_at_its_limit_of_turns(rehearsal, store):
    run = await rehearsal.run('call echo {"value": 1} then call echo {"value": 2}', max_turns=1)
    assert (run.state, run.reason) == (State.FAILED, "the limit of 1 turns is reached")
    assert contents(run) == ["1"]
    assert (await store.load(run.run_id)).run == run


async def test_half_a_call_of_a_reply_that_was_cut_off_is_not_run(fleet, store, tmp_path):
    file = tmp_path / "effect"
    whole, half = json.dumps({"value": "x"}), json.dumps({"path": str(file)})[:-1]
    model = WrittenModel((requesting(("1", "echo", whole), ("2", "write_line", half)), "length"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("write")
    assert not file.exists()
    assert contents(run)[0] == "x"
    assert contents(run)[1].startswith("your reply was cut off by the output limit, so write_line was not called")
    assert run.calls[1].result.kind is FailureKind.BAD_ARGUMENTS
    assert model.heard[1][-2:] == run.messages[2:4]
    assert (await store.load(run.run_id)).run == run


async def test_a_whole_call_of_a_reply_that_was_cut_off_after_it_is_run(fleet):
    model = WrittenModel((requesting(("1", "echo", '{"value": "x"}')), "length"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        assert contents(await orchestrator.run("?")) == ["x"]


async def test_A2_a_repaired_call_of_a_complete_reply_is_run_and_its_record_has_what_was_written(fleet):
    written = '{"value": "x"'
    model = WrittenModel((requesting(("1", "echo", written)), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
    assert contents(run) == ["x"]
    assert run.calls[0].arguments == written


async def test_A3_a_call_with_hopeless_arguments_does_not_start_and_the_model_may_try_again(fleet, tmp_path):
    file = tmp_path / "effect"
    hopeless, right = f"write to {file}", json.dumps({"path": str(file)})
    model = WrittenModel(
        (requesting(("1", "write_line", hopeless)), "tool_calls"),
        (requesting(("2", "write_line", right)), "tool_calls"),
    )
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("write")
    refused, written = contents(run)
    assert refused.startswith("bad arguments for write_line: not valid JSON")
    assert [call.result.type for call in run.calls] == ["failed", "returned"]
    assert run.calls[0].result.kind is FailureKind.BAD_ARGUMENTS
    assert written == "written"
    assert len(file.read_text().splitlines()) == 1


async def test_a_run_that_goes_on_when_its_orchestrator_closes_ends_where_it_is_awaited(fleet, stage):
    async with rehearsed(fleet.settings) as orchestrator:
        running = asyncio.create_task(orchestrator.run(f'call play {{"stage": "{stage.path}"}}'))
        actor = await stage.enters()
    with pytest.raises(OrchestratorClosed, match=actor.call_id.partition(".")[0]):
        await running
    actor.returns()


async def test_an_orchestrator_without_a_model_says_so(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        with pytest.raises(CallerError, match="has no model"):
            await orchestrator.run("hello")


# --- batches --------------------------------------------------------------------------------------------------------


async def test_B1_calls_of_one_reply_run_at_the_same_time(orchestrator, stage):
    answer = asyncio.create_task(orchestrator.execute(asking(*[("play", {"stage": stage.path})] * 3)))
    playing = [await stage.enters() for _ in range(3)]
    for actor in reversed(playing):
        actor.returns(actor.call_id)
    asked = [message.content.rpartition(".")[2] for message in await answer]
    assert asked == ["0", "1", "2"]


async def test_B3_calls_that_the_history_answers_are_not_run_again(orchestrator, tmp_path):
    file = str(tmp_path / "effect")
    message = asking(("write_line", {"path": file}), ("echo", {"value": "b"}), ("echo", {"value": "c"}))
    history = [
        UserMessage(content="?"),
        message,
        ToolMessage(tool_call_id="call-0", name="write_line", content="written"),
    ]
    answers = await orchestrator.execute(message, history=history)
    assert [(answer.tool_call_id, answer.content) for answer in answers] == [("call-1", "b"), ("call-2", "c")]
    assert not (tmp_path / "effect").exists()


async def test_B3_an_id_that_an_earlier_turn_used_too_does_not_count_as_answered(orchestrator):
    earlier = asking(("echo", {"value": "earlier"}))
    answered = ToolMessage(tool_call_id="call-0", name="echo", content="earlier")
    answers = await orchestrator.execute(asking(("echo", {"value": "now"})), history=[earlier, answered])
    assert [answer.content for answer in answers] == ["now"]


async def test_a_call_too_large_to_be_sent_is_answered_and_its_siblings_run(orchestrator):
    large, small = await orchestrator.execute(asking(("echo", {"value": "x" * 70_000}), ("echo", {"value": "y"})))
    assert large.is_error
    assert "max_message_bytes" in large.content
    assert small.content == "y"


async def test_a_call_that_cannot_be_written_down_is_answered_and_its_siblings_run(orchestrator):
    broken, fine = await orchestrator.execute(
        asking(("echo", '{"value": "half a pair: \ud800"}'), ("echo", {"value": 1}))
    )
    assert broken.is_error
    assert "no JSON form" in broken.content
    assert fine.content == "1"


async def test_B2_a_call_that_is_not_back_at_its_deadline_is_timed_out_and_the_quick_one_kept(orchestrator, stage):
    message = asking(("play", {"stage": stage.path}), ("echo", {"value": "quick"}))
    slow, quick = await orchestrator.execute(message, timeout_s=1.0)
    assert slow.content.startswith("play did not finish within")
    assert quick.content == "quick"
    assert await (await stage.enters()).leaves() == "cancelled"


async def test_no_more_calls_are_under_way_than_allowed_and_all_complete(fleet, stage):
    settings = fleet.settings.model_copy(update={"max_unsettled_calls": 10})
    async with Orchestrator(settings=settings) as orchestrator:
        message = asking(*[("play", {"stage": stage.path})] * 100)
        answering = asyncio.create_task(orchestrator.execute(message))
        under_way = [await stage.enters() for _ in range(10)]
        assert orchestrator.dispatched <= 10
        for n in range(100):
            under_way.pop(0).returns(n)
            if n < 90:
                under_way.append(await stage.enters())
                assert orchestrator.dispatched <= n + 11
        assert sorted(int(answer.content) for answer in await answering) == list(range(100))


async def test_a_result_whose_announcement_was_lost_is_found_in_the_store(fleet, orchestrator, stage):
    answering = asyncio.create_task(orchestrator.execute(asking(("play", {"stage": stage.path}))))
    actor = await stage.enters()
    sealed = Seal(fleet.settings).close_result(Returned(content="from the store"), actor.call_id)
    async with connect_async(fleet.settings) as client:
        await client.set(fleet.settings.keys.result(actor.call_id), sealed, ex=60)
    [answer] = await answering
    assert answer.content == "from the store"
    actor.returns("second, and so not counted")
    assert await actor.leaves() == "returned"


async def test_forged_results_are_not_believed(fleet, orchestrator, stage):
    answering = asyncio.create_task(orchestrator.execute(asking(("play", {"stage": stage.path}))))
    actor = await stage.enters()
    forged = Seal(fleet.settings).close_result(Returned(content="forged"), "another.1.0")
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        replies = keys.replies(orchestrator.orchestrator_id)
        await client.xadd(replies, {"c": actor.call_id, "r": forged})
        await client.xadd(replies, {"c": actor.call_id, "r": b"x"})
        await client.xadd(replies, {"nonsense": b"x"})
    actor.returns("true")
    assert [answer.content for answer in await answering] == ["true"]


async def test_connections_that_break_cost_no_call_and_repeat_none(fleet, orchestrator, stage):
    message = asking(*[("play", {"stage": stage.path})] * 3, *[("echo", {"value": n}) for n in range(200)])
    answering = asyncio.create_task(orchestrator.execute(message))
    actors = [await stage.enters() for _ in range(3)]
    async with connect_async(fleet.settings) as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for actor in actors:
            actor.returns("once")
        contents = [answer.content for answer in await answering]
    assert contents == ["once"] * 3 + [str(n) for n in range(200)]
    assert len(stage.actors) == 3


async def test_secret_arguments_reach_the_tool_and_stand_masked_in_the_run(fleet, store):
    async with rehearsed(fleet.settings) as orchestrator:
        question = 'call knock {"word": "open-sesame", "times": 2}'
        events = [event async for event in orchestrator.stream(question)]
        run = events[-1].run
        history = await store.entries(run.run_id)
    assert [message.content for message in run.messages if isinstance(message, ToolMessage)] == ["11 letters, 2 times"]
    assert json.loads(run.calls[0].arguments) == {"word": "***", "times": 2}
    # The user's own question names it; nothing else does.
    told = [repr(event) for event in events[1:] if not hasattr(event, "run")] + [str(entry) for entry in history[1:]]
    assert not [text for text in told if "open-sesame" in text]
    async with connect_async(fleet.settings) as client:
        assert not [key async for key in client.scan_iter(fleet.settings.keys.arguments("*"))]


async def test_thousands_of_runs_begun_at_once_share_a_few_connections(fleet):
    async with Orchestrator(model=WrittenModel(), settings=fleet.settings) as orchestrator:
        runs = await asyncio.gather(*(orchestrator.run("?") for _ in range(1500)))
        async with connect_async(fleet.settings) as client:
            connected = await client.info("clients")
    assert {(run.state, run.reason) for run in runs} == {(State.DONE, None)}
    assert connected["connected_clients"] < 200, connected
