"""What tools spend elsewhere counts once: for the run, its tree, its tenant and the tool."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.budgets.conftest import until
from tests.budgets.paid_provider import PRICES, Bill, one_after_another, paid_provider
from tests.cli.command import Terminal
from tests.http.fleet_of_doors import api_of
from toolfleet import Agent, Context, Limits, LocalFleet, Orchestrator
from toolfleet.calls import Returned
from toolfleet.connections import connect_async
from toolfleet.errors import BadSpending
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.run.limits import cost_of
from toolfleet.orchestrator.run.states import State
from toolfleet.spendings import spent_by_tools

CENT = Bill(tokens=100)


@pytest.fixture(scope="module")
def fleet():
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with LocalFleet(
        ["spending_tools"],
        pools={"io": 1, "cpu": 1},
        environment=here,
        prices=PRICES,
        lease_s=3,
        heartbeat_s=0.5,
        poll_tick_s=0.1,
    ) as running:
        yield running


@pytest.fixture
async def client(fleet):
    async with connect_async(fleet.settings) as connected:
        yield connected


@pytest.fixture
def tenant():
    return f"acme-{secrets.token_hex(4)}"


async def budget_of(client, fleet, tenant, **bounds):
    """A tenant's budget, and how to ask what is used of it."""
    budgets = TenantBudgets(client, fleet.settings)
    await budgets.set(tenant, "total", Bounds(**bounds))

    async def used():
        [standing] = await budgets.of(tenant)
        return round(standing.amounts["usd"].used, 6)

    return used


def asking(*calls):
    return Bill(tokens=100, calls=[(tool, {"usd": usd, **more}) for tool, usd, more in calls])


def spending(fleet, *bills, **options):
    """An orchestrator whose model gives these replies, each for a cent, and then an answer for another one."""
    return _Spending(fleet, [*bills, CENT], options)


class _Spending:
    def __init__(self, fleet, bills, options):
        self._provider = paid_provider(one_after_another(*bills))
        self._fleet, self._options = fleet, options

    async def __aenter__(self):
        provider = await self._provider.__aenter__()
        self._orchestrator = Orchestrator(provider.model(), settings=self._fleet.settings, **self._options)
        return await self._orchestrator.__aenter__()

    async def __aexit__(self, *raised):
        await self._orchestrator.__aexit__(*raised)
        await self._provider.__aexit__(*raised)


async def test_G7_what_tools_spend_is_in_the_totals_of_their_run_their_tenant_and_themselves(
    fleet, client, tenant, tmp_path
):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    before = await spent_by_tools(client, fleet.settings.keys)
    tools = {"search": 0.02, "search_and_fail": 0.03, "search_in_process": 0.04, "search_on_thread": 0.05}
    async with spending(fleet, asking(*((tool, usd, {}) for tool, usd in tools.items()))) as orchestrator:
        run = await orchestrator.run("?", tenant=tenant)
    assert (run.state, run.spent_by_tools) == (State.DONE, pytest.approx(tools))
    assert cost_of(run.model_copy(update={"terms": run.terms})) == pytest.approx(0.16)
    assert await used() == 0.16
    after = await spent_by_tools(client, fleet.settings.keys)
    assert {tool: after[tool] - before.get(tool, 0.0) for tool in tools} == pytest.approx(tools)
    terminal = Terminal(tmp_path, fleet.settings.as_environment())
    shown = await asyncio.to_thread(terminal.run, "runs", "show", run.run_id)
    [line] = [line for line in shown.out.splitlines() if line.startswith("spent by tools")]
    assert "$0.1400" in line
    assert "search_and_fail $0.0300" in line
    listed = await asyncio.to_thread(terminal.run, "budget", "tools", "--json")
    assert {each["tool"]: each["spent_usd"] for each in json.loads(listed.out)} == after
    async with api_of(fleet.settings) as api:
        key, _ = await api.door.keyring.add(tenant=tenant)
        asked = await api.stranger.get(f"/v1/runs/{run.run_id}", headers={"authorization": f"Bearer {key}"})
        told = asked.json()
        assert told["spent_by_tools"] == pytest.approx(tools)
        assert (await api.client.get("/v1/spending")).json() == {"usd_by_tool": after}


async def test_G7_a_call_that_is_delivered_twice_has_spent_once(fleet, client, tenant, tmp_path):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    asked = asking(("search_and_die_at_first", 0.02, {"path": str(tmp_path / "died")}))
    async with spending(fleet, asked) as orchestrator:
        running = asyncio.create_task(orchestrator.run("?", tenant=tenant))
        [first] = fleet.workers[:1]
        await asyncio.to_thread(first.process.wait, 60)
        fleet.start_worker("io")
        run = await running
    assert run.calls[0].result.attempt.number == 2
    assert run.spent_by_tools == {"search_and_die_at_first": 0.02}
    assert await used() == 0.04
    assert (await spent_by_tools(client, fleet.settings.keys))["search_and_die_at_first"] == 0.02


async def test_G7_a_strict_budget_that_tools_have_used_up_says_so_at_the_next_reply(fleet, client, tenant):
    used = await budget_of(client, fleet, tenant, usd=0.05, strict=True)
    async with spending(fleet, asking(("search", 0.06, {}))) as orchestrator:
        run = await orchestrator.run("?", tenant=tenant)
    assert (run.state, run.reason) == (State.FAILED, f"the budget of $0.05 of tenant {tenant} is used up")
    assert await used() == 0.07


async def test_G7_a_runs_own_limit_counts_what_its_tools_spend(fleet):
    async with spending(fleet, asking(("search", 0.2, {}))) as orchestrator:
        run = await orchestrator.run("?", limits=Limits(cost=0.1))
    assert (run.state, run.reason) == (State.FAILED, "the limit of $0.1 is reached")


async def test_G7_what_is_spent_after_the_last_reply_is_booked_too(fleet, client, tenant):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    async with spending(fleet, asking(("search_for_the_user", 0.02, {}))) as orchestrator:
        run = await orchestrator.run("?", tenant=tenant)
        assert (run.state, run.answer) == (State.DONE, "found")

        async def is_booked():
            return await used() == 0.03

        await until(is_booked)
    assert await used() == 0.03


async def test_G7_what_a_tool_has_spent_on_a_job_elsewhere_counts_at_the_jobs_end(fleet, client, tenant):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    async with spending(fleet, asking(("search_elsewhere", 0.02, {}))) as orchestrator:
        run = await orchestrator.run("?", tenant=tenant, slow="wait")
    assert run.spent_by_tools == {"search_elsewhere": 0.02}
    assert await used() == 0.04


async def test_G7_an_answer_that_is_given_again_costs_nothing_again(fleet, client, tenant):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    async with spending(fleet, asking(*[("search_once", 0.02, {})] * 5)) as orchestrator:
        run = await orchestrator.run("?", tenant=tenant)
    assert [call.result.content for call in run.calls] == ["found"] * 5
    assert run.spent_by_tools == {"search_once": 0.02}
    assert await used() == 0.04


async def test_G7_in_a_tree_what_the_tools_of_agents_spend_counts_once(fleet, client, tenant):
    used = await budget_of(client, fleet, tenant, usd=1.0)
    helper = Agent("helper", "Helps.", "helper", tools=["search"])

    def reply(body):
        is_helper = body["messages"][0]["content"].startswith("helper")
        if any(message["role"] == "tool" for message in body["messages"]):
            return CENT
        return asking(("search", 0.02, {})) if is_helper else Bill(tokens=100, calls=[("helper", {"task": "go"})])

    async with (
        paid_provider(reply) as provider,
        Orchestrator(provider.model(), agents=[helper], settings=fleet.settings) as orchestrator,
    ):
        run = await orchestrator.run("?", tenant=tenant, limits=Limits(cost=0.5))
    assert run.state is State.DONE
    assert cost_of(run) == pytest.approx(0.06)
    assert await used() == 0.06


async def test_G7_a_lone_call_tells_what_it_has_spent(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("search", {"usd": 0.02})
    assert isinstance(result, Returned)
    assert result.spent.cost == 0.02


def context(**more):
    return Context(call_id="r.1.0", run_id="r", tool="search", deadline_unix_s=0, **more)


@pytest.mark.parametrize("amount", [-0.01, float("nan"), float("inf"), 2_000_000, True, "0.02", None])
def test_G7_what_is_no_sum_is_refused(amount):
    counting = context(spendings=[])
    with pytest.raises(BadSpending, match="which is no sum: give US dollars from 0 to"):
        counting.spend(amount)
    assert counting.spent is None


def test_G7_only_dollars_are_counted_and_only_in_the_tool_itself():
    with pytest.raises(BadSpending, match="only US dollars are counted"):
        context(spendings=[]).spend(1, "eur")
    with pytest.raises(BadSpending, match=r"nothing counts what is spent here: call ctx.spend in search itself"):
        context().spend(1)


@given(st.lists(st.floats(0, 1000), max_size=20))
def test_G7_sums_add_up(sums):
    counting = context(spendings=[])
    for each in sums:
        counting.spend(each)
    assert (counting.spent.cost if counting.spent else 0.0) == pytest.approx(sum(sums))
