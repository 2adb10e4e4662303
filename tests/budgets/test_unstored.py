"""Replies that were paid for and are no answer: they count all the same, each once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.budgets.conftest import until
from tests.budgets.paid_provider import Bill, one_after_another, paid_provider
from toolfleet.orchestrator import Orchestrator
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


async def _stands_at(budgets, **amounts):
    [standing] = await budgets.of("acme")
    return {name: getattr(standing.amounts["usd"], name) for name in amounts} == amounts
