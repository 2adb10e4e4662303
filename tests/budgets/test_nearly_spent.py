"""When four fifths of a budget are used, the run's history says so once, and its model if it is to know."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tests.budgets.paid_provider import Bill, one_after_another, paid_provider
from toolfleet import BudgetRunsLow, Limits, Orchestrator, RunEnded
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.run.events import BudgetRanLow
from toolfleet.orchestrator.run.nearly_spent import LONGEST_REMINDER, Left, left_of, reminder
from toolfleet.orchestrator.run.states import State

LOOKS = [("nobody_serves_this", {})]
"""A call that is refused at once: with it a run goes on for another turn, without a worker."""


def looking(tokens):
    return Bill(tokens=tokens, calls=LOOKS)


async def told(orchestrator, **options):
    """The run, and what its listener was told of budgets that run low."""
    low, ended = [], None
    async for update in orchestrator.stream("?", **options):
        if isinstance(update, BudgetRunsLow):
            low.append(update)
        elif isinstance(update, RunEnded):
            ended = update.run
    return ended, low


async def history_of(orchestrator, run):
    entries = await orchestrator._services.store.entries(run.run_id)
    return [entry.event for entry in entries if isinstance(entry.event, BudgetRanLow)]


async def test_G4_at_four_fifths_a_run_says_once_what_is_left(settings):
    bills = [looking(70_000), looking(10_000), looking(5_000), Bill(tokens=1)]
    async with (
        paid_provider(one_after_another(*bills)) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        run, low = await told(orchestrator, limits=Limits(tokens=100_000))
        assert [event.left for event in await history_of(orchestrator, run)] == [update.left for update in low]
    assert run.state is State.DONE
    [update] = low
    assert update.left == (Left(of="run", unit="tokens", left=20_000, limit=100_000),)
    assert all("left" not in asked["messages"][-1]["content"] for asked in provider.asked)


async def test_G4_a_model_that_is_to_know_reads_what_is_left_with_each_request(settings):
    bills = [looking(70_000), looking(10_000), looking(5_500), Bill(tokens=1)]
    async with (
        paid_provider(one_after_another(*bills)) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        run = await orchestrator.run("?", limits=Limits(tokens=100_000, cost=100.0, tell_left=True))
    said = [asked["messages"][-1]["content"] for asked in provider.asked]
    assert "left" not in said[0] + said[1]
    assert said[2:] == [
        "[20k tokens left: come to an end before that is used up.]",
        "[14k tokens left: come to an end before that is used up.]",
    ]
    assert not any("left" in str(message) for message in run.messages), "it is not part of the conversation"


async def test_G4_a_tenants_budget_that_runs_low_is_told_by_the_runs_that_use_it(settings, budgets):
    await budgets.set("acme", "day", Bounds(usd=1.0))
    bills = [looking(8_100), Bill(tokens=100), Bill(tokens=100)]
    async with (
        paid_provider(one_after_another(*bills)) as provider,
        Orchestrator(provider.model(), settings=settings) as orchestrator,
    ):
        limits = Limits(tell_left=True)
        run, low = await told(orchestrator, tenant="acme", limits=limits)
        assert run.state is State.DONE
        _, again = await told(orchestrator, tenant="acme", limits=limits)
    [left] = [left for update in low for left in update.left]
    assert (left.of, left.unit, left.limit, round(left.left, 4)) == ("tenant acme a day", "usd", 1.0, 0.19)
    assert [round(left.left, 4) for update in again for left in update.left] == [0.18]
    assert provider.asked[1]["messages"][-1]["content"].startswith("[$0.19 for tenant acme a day left")


@given(st.floats(0, 2e6), st.floats(1, 1e6), st.sampled_from(["usd", "tokens", "calls"]))
def test_G4_it_is_told_from_four_fifths_on_and_never_as_more_than_there_is(used, limit, unit):
    found = left_of("run", unit, used, limit)
    assert bool(found) == (used >= 0.8 * limit)
    for left in found:
        number = float(left.told.split()[0].removeprefix("$").replace("k", "e3"))
        assert 0 <= number <= left.left + 1e-6
        assert left.left <= 0.2 * limit * (1 + 1e-9)


@given(st.text(max_size=256))
def test_G4_no_reminder_is_longer_than_what_was_held_for_it(tenant):
    lefts = [Left(of="run", unit=unit, left=1e6, limit=1e15) for unit in ("usd", "tokens", "calls")]
    lefts += [Left(of=f"tenant {tenant[:64]} a month", unit="usd", left=1e6, limit=1e6)]
    assert len(reminder(lefts).content) <= len(LONGEST_REMINDER.content)
