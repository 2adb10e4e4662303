"""A tenant's budget holds over all orchestrators: reserved before a model is asked, settled by what it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.budgets.conftest import Start, ended, until
from tests.budgets.paid_provider import Bill, one_after_another, paid_provider
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.budgets.tenants import Amounts, TenantBudgets
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point
from toolfleet.settings import Settings

AROUND_5_CENTS = [430, 470, 500, 530, 570]
"""Tokens."""

ONE_REPLY_USD = 0.057


async def amounts_of(budgets: TenantBudgets, unit: str = "usd") -> Amounts:
    [standing] = await budgets.of("acme")
    return standing.amounts[unit]


async def fifty_runs(budgets: TenantBudgets, start: Start, orchestrators: int = 5, **options: Any) -> Amounts:
    """What a dollar stands at after fifty runs on these orchestrators, all at once."""
    given = 0

    def around_five_cents(_: dict[str, Any]) -> Bill:
        nonlocal given
        given += 1
        return Bill(tokens=AROUND_5_CENTS[given % len(AROUND_5_CENTS)], takes_s=0.05)

    async with paid_provider(around_five_cents) as provider:
        starting = [start(provider.base_url, 50 // orchestrators, **options) for _ in range(orchestrators)]
        processes = await asyncio.gather(*starting)
        outcomes = [each for of_one in await asyncio.gather(*map(ended, processes)) for each in of_one]
    assert len(outcomes) == 50
    assert len(provider.billed) == sum(state == State.DONE for state, _ in outcomes)
    assert {reason for state, reason in outcomes if state != State.DONE} == {
        "the budget of $1 of tenant acme is used up"
    }
    amounts = await amounts_of(budgets)
    assert amounts.used == pytest.approx(sum(provider.billed) * 1e-4)
    assert amounts.reserved == 0
    return amounts


@pytest.mark.parametrize("strict", [True, False])
async def test_G1_fifty_runs_on_five_orchestrators_keep_within_a_dollar_of_their_tenant(budgets, start, strict):
    await budgets.set("acme", "total", Bounds(usd=1.0, strict=strict))
    amounts = await fifty_runs(budgets, start)
    assert amounts.used <= (1.0 if strict else 1.0 + ONE_REPLY_USD)


async def test_G2_nine_tenths_of_a_budget_can_be_used_whatever_bound_the_replies_have(budgets, start):
    await budgets.set("acme", "total", Bounds(usd=1.0, strict=True))
    amounts = await fifty_runs(budgets, start, orchestrators=2, model_options={"max_tokens": 16_000})
    assert 0.9 <= amounts.used <= 1.0


async def test_G6_what_an_orchestrator_has_not_booked_of_a_run_is_booked_once_by_whoever_goes_on_with_it(
    budgets: TenantBudgets, start: Start, settings: Settings
) -> None:
    await budgets.set("acme", "day", Bounds(usd=1.0))
    bills = one_after_another(Bill(tokens=500, calls=[("nobody_has_it", {})]), Bill(tokens=300))
    async with paid_provider(bills) as provider:
        killed = await start(provider.base_url, 1, Point.REPLY_STORED)
        assert await ended(killed) == []
        assert (await amounts_of(budgets)).used == 0
        async with Orchestrator(provider.model(), settings=settings) as adopter:
            run_id = (await adopter.runs())[0].run_id
            run = await adopter.wait(run_id)
            assert run.state is State.DONE
            await until(lambda: _is_booked(budgets, 0.08))
            await asyncio.sleep(1.2)  # once more comes whoever looks for what is owed
            assert await amounts_of(budgets) == Amounts(limit=1.0, used=0.08, reserved=0.0)


async def test_G6_a_last_reply_that_was_not_booked_is_booked_once_though_nobody_adopts_its_run(
    budgets: TenantBudgets, start: Start, settings: Settings
) -> None:
    await budgets.set("acme", "total", Bounds(usd=1.0))
    async with paid_provider(one_after_another(Bill(tokens=500))) as provider:
        assert await ended(await start(provider.base_url, 1, Point.REPLY_STORED)) == []
        async with Orchestrator(provider.model(), settings=settings), Orchestrator(settings=settings):
            await until(lambda: _is_booked(budgets, 0.05))
            await asyncio.sleep(1.2)
            assert await amounts_of(budgets) == Amounts(limit=1.0, used=0.05, reserved=0.0)
    assert len(provider.billed) == 1


async def test_G6_what_a_lost_orchestrator_held_is_free_when_its_lease_has_ended(
    budgets: TenantBudgets, start: Start, settings: Settings
) -> None:
    await budgets.set("acme", "total", Bounds(usd=1.0))
    async with paid_provider(one_after_another(Bill(tokens=500))) as provider:
        provider.goes_on.clear()
        lost = await start(provider.base_url, 1)
        assert lost.stdin is not None
        lost.stdin.write(b"\n")
        await until(lambda: _holds_something(budgets))
        lost.kill()
        async with Orchestrator(settings=settings):
            await until(lambda: _is_free(budgets))
    assert (await amounts_of(budgets)).used == 0


async def _is_booked(budgets: TenantBudgets, usd: float) -> bool:
    return (await amounts_of(budgets)).used >= usd


async def _holds_something(budgets: TenantBudgets) -> bool:
    return (await amounts_of(budgets)).reserved > 0


async def _is_free(budgets: TenantBudgets) -> bool:
    return not await _holds_something(budgets)
