"""The rules of the loop, on real workers: limits, repetition, shared state, direct answers, answers of a type."""

import json

import pytest
from conversations import WrittenModel, requesting
from fleets import asking, fleet_of
from pydantic import BaseModel

from toolfleet.calls import FailureKind, Returned
from toolfleet.context import Context
from toolfleet.errors import NoCallback
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.run.states import State


class Answer(BaseModel):
    city: str
    population: int


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}, public_url="https://fleet.example/") as running:
        yield running


@pytest.fixture
def converse(fleet):
    async def conversed(*replies, question="?", **options):
        model = WrittenModel(*((reply, "tool_calls") for reply in replies))
        async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
            return await orchestrator.run(question, **options), model

    return conversed


def calls(*named):
    """A reply that asks for calls: (tool, arguments)."""
    return requesting(*((f"c{n}", tool, json.dumps(arguments)) for n, (tool, arguments) in enumerate(named)))


def says(text):
    return AssistantMessage(content=text)


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


async def test_B2_when_the_turns_time_is_up_the_quick_call_is_kept_and_the_slow_one_stopped(converse):
    run, _ = await converse(calls(("echo", {"value": "quick"}), ("wait", {"seconds": 60})), turn_timeout_s=0.5)
    assert answers(run)[0] == "quick"
    assert run.calls[1].result.kind is FailureKind.TIMED_OUT
    assert run.state is State.DONE


async def test_B4_a_call_left_open_by_an_earlier_conversation_is_answered_before_the_model_is_asked(converse):
    asked = AssistantMessage(
        tool_calls=(RequestedCall(id="a", name="x", arguments="{}"), RequestedCall(id="b", name="y", arguments="{}"))
    )
    history = [UserMessage(content="?"), asked, ToolMessage(tool_call_id="b", name="y", content="2"), says("so")]
    _, model = await converse(question=[*history, UserMessage(content="and?")])
    [heard] = model.heard
    told = [(message.tool_call_id, message.is_error) for message in heard if isinstance(message, ToolMessage)]
    assert told == [("a", True), ("b", False)]
    assert heard.index(asked) + 1 == next(i for i, message in enumerate(heard) if isinstance(message, ToolMessage))


async def test_B5_updates_are_merged_in_the_order_of_the_calls_by_the_strategy_of_each_key(converse):
    run, _ = await converse(
        calls(
            ("update", {"state": {"last": 1, "log": "first", "seen": {"a": 1}}, "seconds": 0.2}),
            ("update", {"state": {"last": 2, "log": "second", "seen": {"b": 2}}}),
        ),
        calls(("shared", {})),
        state={"log": ["began"]},
        merging={"log": "append", "seen": "merge"},
    )
    assert run.values == {"last": 2, "log": ["began", "first", "second"], "seen": {"a": 1, "b": 2}}
    # What the next call's tool saw.
    assert json.loads(answers(run)[-1]) == run.values


async def test_B5_the_update_of_a_call_that_timed_out_is_ignored(converse):
    run, _ = await converse(
        calls(("update", {"state": {"late": True}, "seconds": 60}), ("update", {"state": {"quick": True}})),
        turn_timeout_s=0.5,
    )
    assert run.values == {"quick": True}


async def test_B6_results_of_direct_tools_are_the_answer(converse):
    run, model = await converse(calls(("direct", {"text": "one"}), ("direct", {"text": "two"})))
    assert (run.state, run.answer) == (State.DONE, "one\n\ntwo")
    assert len(model.heard) == 1


@pytest.mark.parametrize("other", [("echo", {"value": 1}), ("direct", {"text": ""}), ("nobody", {})])
async def test_B6_the_model_is_asked_when_one_is_not_direct_or_failed(converse, other):
    run, model = await converse(calls(("direct", {"text": "one"}), other))
    assert (run.state, run.answer) == (State.DONE, "done")
    assert len(model.heard) == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(calls=3), "the limit of 3 calls is reached"),
        (Limits(calls_per_tool=3), "the limit of 3 calls of one tool is reached by echo"),
    ],
)
async def test_B7_a_breach_answers_the_open_calls_and_ends_the_run_with_its_reason(converse, limits, reason):
    two = calls(("echo", {"value": 1}), ("echo", {"value": 2}))
    run, _ = await converse(two, two, limits=limits)
    assert (run.state, run.reason) == (State.FAILED, reason)
    assert [call.result.type for call in run.calls[:2]] == ["returned", "returned"]
    assert [call.result.kind for call in run.calls[2:]] == [FailureKind.LIMIT, FailureKind.LIMIT]
    assert len(answers(run)) == 4


async def test_B7_turns_are_limited_and_only_those_since_the_user_spoke_count(fleet):
    one = (calls(("echo", {"value": 1})), "tool_calls")
    model = WrittenModel(one, (says("first"), "stop"), one, (says("second"), "stop"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?", max_turns=2, limits=Limits(calls=1))
        await orchestrator.resume(run.run_id, "again")
        run = await orchestrator.wait(run.run_id)
    assert (run.state, run.answer, run.turn) == (State.DONE, "second", 4)


async def test_B8_a_model_that_repeats_itself_is_told_and_then_stopped(converse):
    again = calls(("echo", {"value": "same"}))
    run, _ = await converse(*[again] * 10)
    told = [message for message in answers(run) if "this same call" in message]
    assert (run.state, run.reason) == (State.FAILED, "loop")
    assert answers(run)[:3] == ["same"] * 3
    assert len(told) == 3
    assert len(answers(run)) == 7
    assert run.calls[-1].result.kind is FailureKind.LIMIT


async def test_B8_the_same_call_many_times_in_one_reply_is_no_loop(converse):
    run, _ = await converse(calls(*[("echo", {"value": 1})] * 10))
    assert answers(run) == ["1"] * 10


async def test_an_answer_of_a_type_is_validated_and_read(converse):
    run, model = await converse(says('```json\n{"city": "Oslo", "population": 717710}\n```'), output_type=Answer)
    assert run.answer_as(Answer) == Answer(city="Oslo", population=717710)
    assert "population" in model.heard[0][-1].content
    assert len(run.messages) == 2


async def test_an_answer_that_does_not_fit_is_asked_for_once_more(converse):
    run, model = await converse(says("Oslo"), says('{"city": "Oslo", "population": 717710}'), output_type=Answer)
    assert run.answer_as(Answer).city == "Oslo"
    assert "not JSON" in model.heard[1][-2].content


async def test_an_answer_that_never_fits_ends_the_run_with_what_is_wrong(converse):
    run, _ = await converse(says('{"city": 1}'), says('{"city": 1}'), output_type=Answer)
    assert run.state is State.FAILED
    assert "population" in run.reason
    with pytest.raises(ValueError, match="has no answer"):
        run.answer_as(Answer)


async def test_R7_attributes_of_a_result_are_kept_in_the_run_and_not_told(fleet):
    model = WrittenModel((calls(("update", {"state": {}, "attributes": {"rows": 7}})), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
        messages = await orchestrator.execute(asking(("update", {"state": {}, "attributes": {"rows": 8}})))
    assert run.calls[0].result == Returned(content="updated", attributes={"rows": 7})
    assert "rows" not in str(model.heard[1][2:])
    assert [message.content for message in messages] == ["updated"]


async def test_a_tool_knows_the_signed_address_of_its_callback(converse):
    run, _ = await converse(calls(("my_callback", {})))
    [address] = answers(run)
    assert address.startswith(f"https://fleet.example/v1/handles/{run.run_id}.1.0/complete?expires=")
    assert "&signature=" in address


async def test_without_an_address_of_the_api_a_tool_is_told_what_to_set(fleet):
    context = Context(call_id="r.1.0", run_id="r", tool="t", deadline_unix_s=1.0)
    with pytest.raises(NoCallback, match="TOOLFLEET_PUBLIC_URL"):
        _ = context.callback_url
