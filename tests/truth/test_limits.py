"""Limits bind calls that are sent while the reply streams, and the history says which were made."""

import json

import pytest

from tests.truth.ledger import judge
from tests.truth.slow_writer import NAME, Reply, slow_writer
from toolfleet.calls import Failed
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.prices import Price

PAUSE_S = 0.01


async def ran(fleet, *replies, **options):
    settings = fleet.settings.model_copy(update={"prices": {NAME: Price(input=1.0, output=1.0)}})
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=settings) as orchestrator:
        return await orchestrator.run("?", **options)


@pytest.mark.parametrize(
    ("limits", "at_most", "reason"),
    [
        (Limits(), 40, "the limit of 40 calls of one tool is reached by charge"),
        (Limits(calls=25), 25, "the limit of 25 calls is reached"),
        (Limits(calls_per_tool=1), 1, "the limit of 1 calls of one tool is reached by charge"),
    ],
)
async def test_B7_a_reply_that_streams_makes_no_more_calls_than_the_limit_allows(
    fleet, ledger, limits, at_most, reason
):
    calls = [ledger.asks("charge", f"k{n}") for n in range(120)]
    run = await ran(fleet, Reply(calls, PAUSE_S), limits=limits)
    told = judge(run, ledger)
    made = [key for key, word in told.items() if word == "made"]
    assert made == [f"k{n}" for n in range(at_most)]
    assert set(told.values()) == {"made", "not called"}
    assert ledger.effects.total() == at_most
    assert (run.state, run.reason) == (State.FAILED, reason)


@pytest.mark.parametrize("limits", [Limits(tokens=100), Limits(cost=0.0001)])
async def test_B7_a_reply_that_costs_too_much_makes_no_call(fleet, ledger, limits):
    calls = [ledger.asks("charge", f"k{n}") for n in range(20)]
    run = await ran(fleet, Reply(calls, PAUSE_S, tokens=1000), limits=limits)
    assert set(judge(run, ledger).values()) == {"not called"}
    assert ledger.effects.total() == 0
    assert run.state is State.FAILED


async def test_B8_the_seventh_identical_call_is_not_made_though_its_reply_streams(fleet, ledger):
    replies = [Reply([ledger.asks("charge", "same")], 0.2) for _ in range(8)]
    run = await ran(fleet, *replies)
    assert ledger.effects["same"] == 6
    assert (run.state, run.reason) == (State.FAILED, "loop")
    assert [call.result.type for call in run.calls] == ["returned"] * 6 + ["failed"]
    assert "was not called" in run.messages[-1].content


async def test_B7_calls_that_another_tool_has_made_early_count_too(fleet, ledger):
    first = [ledger.asks("charge", f"a{n}") for n in range(3)]
    mixed = [ledger.asks("charge" if n % 2 else "charge_directly", f"b{n}") for n in range(10)]
    run = await ran(fleet, Reply(first, PAUSE_S), Reply(mixed, PAUSE_S), limits=Limits(calls=8))
    told = judge(run, ledger)
    assert [key for key, word in told.items() if word == "made"] == ["a0", "a1", "a2", "b0", "b1", "b2", "b3", "b4"]
    assert json.dumps(run.reason) == '"the limit of 8 calls is reached"'


# --- what is done at a limit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "at_most", "why"),
    [
        ({"calls_per_tool": 3}, 3, "the limit of 3 calls of one tool is reached by charge"),
        ({"calls_per_reply": 4}, 4, "the limit of 4 calls in one reply is reached"),
        ({"calls": 5}, 5, "the limit of 5 calls is reached"),
        ({"calls_per_conversation": 6}, 6, "the limit of 6 calls in one conversation is reached"),
    ],
)
@pytest.mark.parametrize("then", ["tell", "wrap_up", "end"])
@pytest.mark.parametrize("pause_s", [0.0, 0.03])
async def test_G10_at_each_limit_on_calls_a_run_goes_on_answers_or_ends_as_it_says(
    fleet, ledger, limits, at_most, why, then, pause_s
):
    calls = [ledger.asks("charge", f"k{n}") for n in range(30)]
    replies = [Reply(calls, pause_s), Reply(text="as far as I know")]
    [limit] = limits
    settings = fleet.settings
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=settings) as orchestrator:
        run = await orchestrator.run("?", limits=Limits(**limits, then={limit: then}))
    told = judge(run, ledger)
    made = [key for key, word in told.items() if word == "made"]
    assert set(told.values()) <= {"made", "not called"}
    refused = [call.result.message for call in run.calls if isinstance(call.result, Failed)]
    assert all(why in message for message in refused)
    if then == "tell":
        assert made == [f"k{n}" for n in range(at_most)]
        assert (run.state, run.reason, run.answer) == (State.DONE, None, "as far as I know")
        assert "tools" in writer.asked[1]
        return
    # What was sent before the limit was seen counts; a reply that came whole is not begun with.
    assert made == [f"k{n}" for n in range(at_most if pause_s else 0)]
    if then == "end":
        assert (run.state, run.reason) == (State.FAILED, why)
        return
    assert (run.state, run.reason, run.answer) == (State.DONE, "budget", "as far as I know")
    assert "tools" not in writer.asked[1]
    assert why in writer.asked[1]["messages"][-1]["content"]


async def test_G10_calls_that_a_limit_withholds_do_not_count_and_those_of_a_conversation_do_in_each_answer(
    fleet, ledger
):
    limits = Limits(calls_per_tool=2, calls=4, calls_per_conversation=3, then={"calls_per_tool": "tell"})
    asking = [Reply([ledger.asks("charge", f"{turn}{n}") for n in range(3)]) for turn in "ab"]
    async with (
        slow_writer(asking[0], Reply(text="one"), asking[1]) as writer,
        Orchestrator(writer.model(), settings=fleet.settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=limits)
        assert (run.state, ledger.effects.total()) == (State.DONE, 2)
        await orchestrator.resume(run.run_id, "and?")
        run = await orchestrator.wait(run.run_id)
    assert (run.state, run.reason) == (State.FAILED, "the limit of 3 calls in one conversation is reached")
    judge(run, ledger)


async def test_G5_a_run_over_its_tokens_sends_nothing_more_and_answers_with_what_is_back(fleet, ledger):
    first = [ledger.asks("charge", f"a{n}", seconds=0.3) for n in range(3)]
    second = [ledger.asks("charge", f"b{n}") for n in range(3)]
    replies = [Reply(first, tokens=60), Reply(second, tokens=60), Reply(text="what I know")]
    run = await ran(fleet, *replies, limits=Limits(tokens=100, wrap_up=True))
    told = judge(run, ledger)
    assert {key for key, word in told.items() if word == "made"} == {"a0", "a1", "a2"}
    assert (run.state, run.reason, run.answer) == (State.DONE, "budget", "what I know")


async def test_G5_a_model_that_asks_for_calls_instead_of_its_last_word_ends_the_run(fleet, ledger):
    replies = [Reply([ledger.asks("charge", f"k{n}")], tokens=60) for n in range(5)]
    run = await ran(fleet, *replies, limits=Limits(tokens=100, wrap_up=True))
    assert (run.state, run.reason) == (State.FAILED, "the limit of 100 tokens is reached")
    assert set(ledger.effects) == {"k0"}
    judge(run, ledger)
