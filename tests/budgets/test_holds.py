"""What is held for a reply: in every account, under a name of its own, in one period, and until it is booked."""

from __future__ import annotations

import json
from typing import Final

import pytest
from redis.asyncio import Redis

from toolfleet.orchestrator.budgets.ledger import Bill, Heard, Held, Ledger, Outcome, Refused, Request, Totals
from toolfleet.orchestrator.run.accounts import Account, Bounds, Period
from toolfleet.settings import Settings

ASKED: Final = Request("m", 20, 50, None)
LAST: Final = ASKED._replace(turn=3, may_go_beyond=True)
NOTHING: Final = Totals(0.0, 0, 0)


@pytest.fixture
def ledger(client: Redis, settings: Settings) -> Ledger:
    return Ledger(client, settings, "alive")


def of_acme(period: Period, *, tokens: int | None = None, calls: int | None = None, strict: bool = False) -> Account:
    return Account(name="tenant:acme", period=period, bounds=Bounds(tokens=tokens, calls=calls, strict=strict))


def bill(*accounts: Account, run: str = "r") -> Bill:
    return Bill(run, accounts, None, 3600)


async def uses(ledger: Ledger, tokens: int, *accounts: Account) -> None:
    """Let another run use so many tokens."""
    await ledger.reserve(bill(*accounts, run="other"), NOTHING, ASKED, "o")
    await ledger.settle(bill(*accounts, run="other"), Totals(0.0, tokens, 0), token="o")


async def stands(ledger: Ledger, client: Redis, name: str) -> dict[str, int]:
    found = await client.hgetall(ledger.settings.keys.budget(name))
    return {field.decode(): int(amount) for field, amount in found.items()}


async def test_G5_a_last_reply_that_goes_beyond_one_account_is_bounded_by_those_that_are_strict(ledger):
    spent, strict = of_acme("total", tokens=100), of_acme("month", tokens=900, strict=True)
    await uses(ledger, 600, spent, strict)
    held = await ledger.reserve(bill(spent, strict), NOTHING, LAST, "t")
    assert isinstance(held, Held)
    assert held.beyond == Refused(spent, "tokens", 100)
    assert 0 < held.max_tokens <= 300 - ASKED.most_tokens
    await uses(ledger, 880, spent, strict)
    refused = await ledger.reserve(bill(spent, strict, run="late"), NOTHING, LAST, "l")
    assert isinstance(refused, Refused)
    assert refused.account == strict


async def test_G6_a_last_reply_is_booked_though_its_orchestrator_is_lost_with_it(ledger, client):
    spent = of_acme("total", tokens=100)
    await uses(ledger, 100, spent)
    await ledger.reserve(bill(spent), NOTHING, LAST, "t")  # its lease is not there: it is lost
    _, owed = await Ledger(client, ledger.settings, "another").tend()
    assert owed == ["r"]
    assert await ledger.bill_of("r") == bill(spent)


async def test_G5_a_run_goes_beyond_an_account_once(ledger):
    spent = of_acme("total", tokens=100)
    await uses(ledger, 100, spent)
    assert isinstance(await ledger.reserve(bill(spent), NOTHING, LAST, "t"), Held)
    again = await ledger.reserve(bill(spent), NOTHING, LAST, "the same reply, asked for again")
    assert isinstance(again, Held)
    later = await ledger.reserve(bill(spent), NOTHING, LAST._replace(turn=4), "u")
    assert later == Refused(spent, "tokens", 100)


async def test_G6_what_was_heard_and_could_not_be_stored_is_booked_once(ledger, client):
    account = of_acme("", tokens=1000)
    await ledger.reserve(bill(account), NOTHING, ASKED, "t")
    for _ in range(3):
        await ledger.settle(bill(account), NOTHING, token="t", heard=Heard(0.0, 70))
    assert (await stands(ledger, client, "tenant:acme")) == {"used_tokens": 70, "held_tokens": 0}


async def test_G1_a_reply_counts_in_the_period_in_which_it_was_held(ledger, client):
    account = of_acme("day", tokens=1000, strict=True)
    await ledger.reserve(bill(account), NOTHING, ASKED, "t")
    [today] = await client.keys(f"{ledger.settings.keys.budget('tenant:acme')}:day:*")
    # Midnight: what is held is of the day before.
    begin, _, day = today.decode().rpartition(":")
    yesterday = f"{begin}:{int(day) - 1}"
    await client.rename(today, yesterday)
    held = await client.hget(ledger.settings.keys.reserved("alive"), "r")
    await client.hset(ledger.settings.keys.reserved("alive"), "r", held.decode().replace(day, str(int(day) - 1)))
    assert await ledger.judge(bill(account), 0.0, 80, 2, token="t") is None
    await ledger.settle(bill(account), Totals(0.0, 80, 2), token="t", request=ASKED, outcome=Outcome(0, 80))
    assert not await client.exists(today)
    used = await client.hmget(yesterday, ["used_tokens", "used_calls", "held_tokens", "held_calls"])
    assert [int(each) for each in used] == [80, 2, 0, 0]


async def test_G3_calls_that_are_judged_again_because_the_answer_was_lost_are_held_once(ledger):
    account = of_acme("", calls=10)
    await ledger.reserve(bill(account), NOTHING, ASKED, "t")
    for _ in range(3):
        assert await ledger.judge(bill(account), 0.0, 5, 8, token="t") is None
    await ledger.reserve(bill(account, run="s"), NOTHING, ASKED, "s")
    assert await ledger.judge(bill(account, run="s"), 0.0, 5, 2, token="s") is None
    assert await ledger.judge(bill(account, run="s"), 0.0, 5, 3, token="s") == Refused(account, "calls", 10, left=2)


async def test_G6_who_comes_late_to_settle_a_reply_leaves_alone_what_is_held_for_the_next(ledger, client):
    account = of_acme("", tokens=1000)
    await ledger.reserve(bill(account), NOTHING, ASKED, "first")
    await ledger.reserve(bill(account), NOTHING, ASKED, "next")
    before = await stands(ledger, client, "tenant:acme")
    assert before["held_tokens"] > 0
    await ledger.settle(bill(account), NOTHING, token="first")
    assert await stands(ledger, client, "tenant:acme") == before


async def test_G6_what_is_held_for_a_run_that_cannot_be_read_any_more_is_given_back(ledger, client):
    account = of_acme("", tokens=1000)
    await ledger.reserve(bill(account), NOTHING, ASKED, "t")
    await ledger.forget("r")
    assert (await stands(ledger, client, "tenant:acme"))["held_tokens"] == 0
    assert not await client.exists(ledger.settings.keys.reserved("alive"))


async def test_G6_a_bill_that_cannot_be_read_counts_as_none(ledger, client):
    await client.hset(ledger.settings.keys.booked("r"), "bill", json.dumps(["r"]))
    assert await ledger.bill_of("r") is None


@pytest.mark.parametrize(
    ("period", "left", "asked", "bound"),
    [
        ("total", 10**6, None, 4096),
        ("total", 10**6, 16_000, 16_000),
        ("total", 3050, None, 1000),
        ("", 3050, None, 3000),
        ("", 10**6, None, 4096),
    ],
)
async def test_G2_a_reply_under_a_strict_account_is_short_only_where_little_is_left_for_others(
    ledger, period, left, asked, bound
):
    request = ASKED._replace(max_tokens=asked)
    held = await ledger.reserve(bill(of_acme(period, tokens=left, strict=True)), NOTHING, request, "t")
    assert held == Held(bound)


async def test_G2_replies_that_were_cut_off_do_not_make_the_next_ones_shorter(ledger):
    account = of_acme("total", tokens=3050, strict=True)
    for n, outcome in enumerate([Outcome(0, 400), Outcome(0, 10, is_cut=True), Outcome(0, 5, is_interrupted=True)]):
        await ledger.reserve(bill(account), NOTHING, ASKED, str(n))
        await ledger.settle(bill(account), NOTHING, token=str(n), request=ASKED, outcome=outcome)
    assert await ledger.reserve(bill(account), NOTHING, ASKED, "t") == Held(800)


async def test_G6_a_reply_of_which_its_provider_tells_nothing_comes_to_what_was_held_for_it(ledger, client):
    account = of_acme("", tokens=10_000)
    await ledger.reserve(bill(account), NOTHING, ASKED, "t")
    held = (await stands(ledger, client, "tenant:acme"))["held_tokens"]
    for _ in range(2):
        await ledger.settle(bill(account), NOTHING, token="t", request=ASKED, outcome=Outcome())
    assert await stands(ledger, client, "tenant:acme") == {"held_tokens": 0, "used_tokens": held}


async def test_G9_a_tenant_that_is_called_as_anothers_day_has_an_account_of_its_own(budgets, ledger, client):
    day = Account(name="tenant:acme", period="day", bounds=Bounds(tokens=100))
    await uses(ledger, 50, day)
    [kept] = [key.decode() async for key in client.scan_iter(f"{ledger.settings.keys.budget('')}*:day:*")]
    namesake = kept.removeprefix(ledger.settings.keys.budget("tenant:"))
    await budgets.set(namesake, "total", Bounds(tokens=100))
    [standing] = await budgets.of(namesake)
    assert standing.amounts["tokens"].used == 0
