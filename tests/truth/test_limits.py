"""Limits bind calls that are sent while the reply streams, and the history says which were made."""

import json

import pytest

from tests.truth.ledger import judge
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.run.states import State

PAUSE_S = 0.01


async def ran(fleet, *replies, **options):
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
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


@pytest.mark.parametrize("limits", [Limits(tokens=100), Limits(cost=0.0001, input_price=1.0)])
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
