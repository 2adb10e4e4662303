"""Replies that were paid for and are no answer: they count all the same, each once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.budgets.conftest import until
from tests.budgets.paid_provider import Bill, one_after_another, paid_provider
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.errors import BudgetSpent
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point, install


@pytest.fixture
def at_point():
    """Do something when this process reaches a point, which waits for it."""
    yield install
    install(None)


async def test_G6_answers_that_do_not_fit_their_schema_are_paid_for(budgets, settings):
    await budgets.set("acme", "total", Bounds(usd=1.0))
    async with (
        paid_provider(one_after_another(Bill(text="no number"), Bill(text="none either"))) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        run = await orchestrator.run("?", tenant="acme", output_type=int)
        assert run.state is State.FAILED
        assert [message.content for message in run.messages if message.role == "assistant"] == [
            "no number",
            "none either",
        ]
        assert run.usage.output_tokens == 1000
        [standing] = await budgets.of("acme")
        assert standing.amounts["usd"].used == pytest.approx(0.1)


async def test_G6_a_reply_whose_run_was_ended_before_it_was_stored_is_paid_for(budgets, settings, at_point):
    await budgets.set("acme", "total", Bounds(usd=1.0))

    async def cancel(run_id: str) -> None:
        async with Orchestrator(settings=settings) as another:
            await another.cancel(run_id)

    with ThreadPoolExecutor() as elsewhere:

        def cancelled_meanwhile(point: Point, run_id: str) -> None:
            if point == Point.REPLY_RECEIVED:
                elsewhere.submit(asyncio.run, cancel(run_id)).result()

        async with (
            paid_provider(one_after_another(Bill(tokens=500))) as provider,
            Orchestrator(provider.model(), settings=settings) as orchestrator,
        ):
            at_point(cancelled_meanwhile)
            run = await orchestrator.run("?", tenant="acme")
            assert (run.state, run.usage.output_tokens) == (State.CANCELLED, 0)
            await until(partial(_stands_at, budgets, used=0.05, reserved=0.0))


async def test_G5_a_run_does_not_go_on_once_its_budget_or_its_tenants_is_used_up(budgets, settings):
    await budgets.set("acme", "total", Bounds(usd=0.05))
    calls = [("nobody_has_it", {})]
    async with (
        paid_provider(one_after_another(Bill(), Bill(calls=calls), Bill(text="as far as I know"))) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        of_acme = await orchestrator.run("?", tenant="acme", limits=Limits(wrap_up=True))
        alone = await orchestrator.run("?", limits=Limits(tokens=100, wrap_up=True))
        assert (alone.state, alone.reason) == (State.DONE, "budget")
        for run in (of_acme, alone):
            with pytest.raises(BudgetSpent):
                await orchestrator.resume(run.run_id, "and?")
    assert len(provider.asked) == 3


async def _stands_at(budgets, **amounts):
    [standing] = await budgets.of("acme")
    return {name: getattr(standing.amounts["usd"], name) for name in amounts} == amounts


@pytest.mark.parametrize("junk", ["of another type", "no run"])
async def test_G6_a_run_that_cannot_be_read_keeps_no_orchestrator_from_its_start_and_no_other_run_from_its_booking(
    budgets, settings, client, junk
):
    await budgets.set("acme", "total", Bounds(usd=1.0))
    keys = settings.keys
    async with (
        paid_provider(one_after_another(Bill(), Bill())) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        run = await orchestrator.run("?", tenant="acme")
        await client.hset(keys.booked(run.run_id), "usd", 0)  # as if it had not been booked
        unreadable = [f"unreadable-{n}" for n in range(3)]
        for run_id in unreadable:
            if junk == "no run":
                await client.xadd(keys.run(run_id), {"event": "{", "mac": "none"})
            else:
                await client.set(keys.run(run_id), "no stream")
        await client.sadd(keys.unbooked(), *unreadable, run.run_id)
        async with Orchestrator(provider.model(), settings=settings) as another:
            await until(partial(_stands_at, budgets, used=0.1))
            assert (await another.run("?", tenant="acme")).state is State.DONE
