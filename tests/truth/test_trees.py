"""What a run and the runs of its agents use up together: one limit for the tree, each token and call counted once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.budgets.paid_provider import NAME, Bill, paid_provider
from toolfleet import Agent, Limits, Orchestrator
from toolfleet.orchestrator.budgets.price_list import price_of
from toolfleet.orchestrator.errors import RunNotFound, UnknownPrice
from toolfleet.orchestrator.run.limits import cost_of
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.prices import Price
from toolfleet.spendings import NANO

HELPERS = [Agent(f"helper{n}", "Helps.", f"helper {n}", tools=["charge"]) for n in range(5)]
PRICES = {NAME: Price(input=0.0, output=100.0)}


def of_tree(ledger: Any, tokens: int) -> Callable[[dict[str, Any]], Bill]:
    """The caller asks for all its helpers at once, each of which charges two cards in every reply for ever."""
    asked = 0

    def reply(body: dict[str, Any]) -> Bill:
        nonlocal asked
        asked += 1
        if not body["messages"][0]["content"].startswith("helper"):
            calls = [(agent.name, {"task": "go"}) for agent in HELPERS]
            return Bill(tokens=tokens, calls=calls if len(body["messages"]) == 1 else ())
        charges = [("charge", json.loads(ledger.asks("charge", f"c{asked}-{n}")[2])) for n in range(2)]
        return Bill(tokens=tokens, calls=charges, takes_s=0.02)

    return reply


async def ran(fleet: Any, ledger: Any, tokens: int, limits: Limits) -> tuple[Run, list[Run], list[int], dict[str, int]]:
    settings = fleet.settings.model_copy(update={"prices": PRICES})
    async with (
        paid_provider(of_tree(ledger, tokens)) as provider,
        Orchestrator(provider.model(), agents=HELPERS, settings=settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=limits)
        children = [await orchestrator.get(call.call_id) for call in run.calls]
        key = settings.keys.budget(f"run:{run.run_id}")
        client = orchestrator._services.store._client  # to see what the account says
        account = {name.decode(): int(value) for name, value in (await client.hgetall(key)).items()}
    return run, children, provider.billed, account


async def test_G3_a_tree_stops_at_its_tokens_and_counts_each_of_them_once(fleet, ledger):
    run, children, billed, account = await ran(
        fleet, ledger, 5000, Limits(tokens=100_000, calls=1000, calls_per_tool=1000)
    )
    assert len(children) == 5
    assert {child.state for child in children} == {State.FAILED}
    assert run.usage.output_tokens == sum(billed) == account["used_tokens"]
    # The last reply may go beyond; more than one at a time only where replies come to more than was expected.
    assert 95_000 <= sum(billed) <= 100_000 + 6 * 5000
    assert account["held_tokens"] == 0


async def test_G3_a_tree_makes_as_many_calls_as_it_may_and_its_caller_knows_of_each(fleet, ledger):
    _run, children, _, _ = await ran(fleet, ledger, 10, Limits(tokens=100_000, calls=50, calls_per_tool=1000))
    assert {child.state for child in children} == {State.FAILED}
    made = ledger.effects.total()
    assert 44 <= made + 5 <= 50
    assert sum(len([call for call in child.calls if call.refusal is None]) for child in children) == made
    assert set(ledger.effects.values()) == {1}


async def test_G3_a_strict_tree_never_goes_beyond_its_cost(fleet, ledger):
    run, _, billed, account = await ran(
        fleet, ledger, 400, Limits(cost=1.0, strict=True, calls=1000, calls_per_tool=1000)
    )
    assert cost_of(run) == pytest.approx(sum(billed) * 1e-4)
    assert account["used_usd"] == pytest.approx(sum(billed) * 1e-4 * NANO)
    assert 0.9 <= cost_of(run) <= 1.0


async def test_G3_an_agent_may_narrow_what_it_uses_and_not_widen_it(fleet, ledger):
    agents = [Agent("helper0", "Helps.", "helper 0", tools=["charge"], limits=Limits(tokens=10**9, calls=4))]

    def reply(body: dict[str, Any]) -> Bill:
        if not body["messages"][0]["content"].startswith("helper"):
            return Bill(tokens=10, calls=[("helper0", {"task": "go"})] if len(body["messages"]) == 1 else ())
        charges = [("charge", json.loads(ledger.asks("charge", f"c{len(body['messages'])}")[2]))]
        return Bill(tokens=10, calls=charges)

    async with (
        paid_provider(reply) as provider,
        Orchestrator(provider.model(), agents=agents, settings=fleet.settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=Limits(tokens=500))
        child = await orchestrator.get(run.calls[0].call_id)
    assert child.reason == "the limit of 4 calls is reached"
    assert child.terms.limits.tokens == 490
    assert run.state is State.DONE


async def test_G3_what_an_agent_says_is_strict_is_so_for_its_own_runs_within_a_tree(fleet):
    agents = [Agent("helper0", "Helps.", "helper 0", tools=[], limits=Limits(tokens=5000, strict=True))]

    def reply(body: dict[str, Any]) -> Bill:
        if not body["messages"][0]["content"].startswith("helper"):
            return Bill(tokens=10, calls=[("helper0", {"task": "go"})] if len(body["messages"]) == 1 else ())
        return Bill(tokens=50_000)

    async with (
        paid_provider(reply) as provider,
        Orchestrator(provider.model(), agents=agents, settings=fleet.settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=Limits(tokens=100_000))
        child = await orchestrator.get(run.calls[0].call_id)
    assert 0 < child.usage.output_tokens <= 5000


async def test_G8_the_run_of_an_agent_without_a_model_of_its_own_costs_what_the_orchestrators_model_does(fleet):
    def reply(body: dict[str, Any]) -> Bill:
        callee = {"?": "outer", "outer": "inner"}.get(body["messages"][0]["content"])
        calls = [(callee, {"task": "go"})] if callee and body["messages"][-1]["role"] != "tool" else ()
        return Bill(tokens=10, calls=calls)

    settings = fleet.settings.model_copy(update={"prices": {**PRICES, "cheap": Price(input=0.0, output=1.0)}})
    async with paid_provider(reply) as provider:
        outer = Agent("outer", "Asks.", "outer", tools=["inner"], model=provider.model("cheap"))
        inner = Agent("inner", "Helps.", "inner", tools=[])
        async with Orchestrator(provider.model(), agents=[outer, inner], settings=settings) as orchestrator:
            run = await orchestrator.run("?", limits=Limits(cost=1.0))
            below = await orchestrator.get(run.calls[0].call_id)
            lowest = await orchestrator.get(below.calls[0].call_id)
    assert [each.terms.price for each in (run, below, lowest)] == [
        PRICES[NAME],
        settings.prices["cheap"],
        PRICES[NAME],
    ]


async def test_G8_a_limit_on_the_cost_of_a_model_without_a_price_is_refused_before_the_run_starts(fleet):
    async with (
        paid_provider(lambda _: Bill()) as provider,
        Orchestrator(provider.model(), settings=fleet.settings) as orchestrator,
    ):
        with pytest.raises(UnknownPrice, match=r"what paid costs is not known.*TOOLFLEET_PRICES"):
            await orchestrator.run("?", limits=Limits(cost=1.0), run_id="unpriced")
        with pytest.raises(RunNotFound):
            await orchestrator.get("unpriced")
    assert provider.asked == []


async def test_G8_so_is_one_where_an_agents_own_model_has_no_price(fleet):
    settings = fleet.settings.model_copy(update={"prices": PRICES})
    async with paid_provider(lambda _: Bill()) as provider:
        own = Agent("helper0", "Helps.", "helper 0", model=provider.model("nobodys"))
        async with Orchestrator(provider.model(), agents=[own], settings=settings) as orchestrator:
            with pytest.raises(UnknownPrice, match="what nobodys costs is not known"):
                await orchestrator.run("?", limits=Limits(cost=1.0))


def test_G8_prices_that_are_known_go_by_the_name_with_or_without_a_date_and_ones_own_come_first():
    assert price_of("gpt-4o", {}) == price_of("gpt-4o-2024-11-20", {}) is not None
    assert price_of("claude-sonnet-4-5-20250929", {}) == price_of("claude-sonnet-4-5", {}) is not None
    own = Price(input=7.0, output=7.0)
    assert price_of("gpt-4o", {"gpt-4o": own}) == own
    assert price_of("gpt-4o-2024-11-20", {"gpt-4o": own}) == own
    assert price_of("gpt-4o-finetuned", {}) is None


def test_G8_a_model_that_stands_for_several_costs_what_the_dearest_of_them_does():
    own = {"a": Price(input=1.0, output=9.0), "b": Price(input=2.0, output=3.0, cached_input=0.5)}
    both = price_of("a | b", own)
    assert both is not None
    assert (both.input, both.output, both.cached_input) == (2.0, 9.0, 1.0)
    assert price_of("a | nobodys", own) is None


async def test_G10_in_a_tree_calls_beyond_what_it_may_make_are_not_made_and_its_run_goes_on_where_it_says_so(
    fleet, ledger
):
    """The helper takes 3 of the tree's 10 calls, itself one; its caller asks for 8 more."""
    helper = Agent("helper0", "Helps.", "helper 0", tools=["charge"])

    def reply(body: dict[str, Any]) -> Bill:
        answered = sum(message["role"] == "tool" for message in body["messages"])
        is_helper = body["messages"][0]["content"].startswith("helper")
        if answered > (0 if is_helper else 1):
            return Bill(tokens=10)
        if not is_helper and not answered:
            return Bill(tokens=10, calls=[("helper0", {"task": "go"})])
        keys = [f"h{n}" for n in range(2)] if is_helper else [f"k{n}" for n in range(8)]
        return Bill(tokens=10, calls=[("charge", json.loads(ledger.asks("charge", key)[2])) for key in keys])

    limits = Limits(tokens=100_000, calls=10, then={"calls": "tell"})
    settings = fleet.settings.model_copy(update={"prices": PRICES})
    async with (
        paid_provider(reply) as provider,
        Orchestrator(provider.model(), agents=[helper], settings=settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=limits)
    assert (run.state, run.reason) == (State.DONE, None)
    assert set(ledger.effects) == {"h0", "h1", *(f"k{n}" for n in range(7))}
    [refused] = [call.result.message for call in run.calls if call.result.type == "failed"]
    assert refused.startswith("charge was not called: the limit of 10 calls is reached")
