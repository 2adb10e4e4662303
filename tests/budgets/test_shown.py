"""Budgets as people see them: on the command line, over HTTP, and as the answer to who has used one up."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from tests.budgets.paid_provider import NAME, Bill, paid_provider
from tests.cli.command import Terminal
from tests.http.fleet_of_doors import api_of
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.budgets.periods import resets_unix_s
from toolfleet.orchestrator.errors import BudgetSpent, UnknownPrice
from toolfleet.orchestrator.run.accounts import Bounds


@pytest.fixture
async def provider():
    async with paid_provider(lambda _: Bill(tokens=500)) as running:
        yield running


async def bearer(api, **allowed):
    key, _ = await api.door.keyring.add(**allowed)
    return {"authorization": f"Bearer {key}"}


async def test_G9_a_budget_that_is_set_and_shown_on_the_command_line_binds_and_is_taken_away_there(
    settings, provider, tmp_path
):
    terminal = Terminal(tmp_path, settings.as_environment())
    said = await asyncio.to_thread(terminal.run, "budget", "set", "acme", "--usd", "0.05", "--per", "day")
    assert said.code == 0, said.err
    async with Orchestrator(provider.model(), settings=settings) as orchestrator:
        await orchestrator.run("?", tenant="acme")
        with pytest.raises(BudgetSpent, match=r"the budget of \$0.05 a day of tenant acme is used up"):
            await orchestrator.run("?", tenant="acme")
        await orchestrator.run("?", tenant="another")
    said = await asyncio.to_thread(terminal.run, "budget", "show", "acme")
    resets = datetime.fromtimestamp(resets_unix_s("day"), UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert said.out.strip().split("\t") == ["day", "usd", "0.0500", "0.0500", "0.0000", "0.0000", "no", resets]
    assert (await asyncio.to_thread(terminal.run, "budget", "remove", "acme", "--per", "day")).code == 0
    said = await asyncio.to_thread(terminal.run, "budget", "show", "acme", "--json")
    assert said.out.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "needs usd, tokens or calls"),
        (["--usd", "-1"], "--usd"),
        (["--usd", "nan"], "--usd"),
        (["--tokens", "0"], "--tokens"),
    ],
)
async def test_G9_a_budget_that_cannot_be_meant_is_refused_in_one_line(settings, tmp_path, options, complaint):
    terminal = Terminal(tmp_path, settings.as_environment())
    said = await asyncio.to_thread(terminal.run, "budget", "set", "acme", *options)
    assert complaint in said.complaint()


async def test_G9_over_http_a_budget_tells_what_remains_and_who_has_none_left_is_told_until_when(
    settings, provider, budgets
):
    await budgets.set("acme", "day", Bounds(usd=0.05, calls=10))
    async with api_of(settings, provider.model()) as api:
        acme = await bearer(api, tenant="acme")
        [shown] = (await api.stranger.get("/v1/budget", headers=acme)).json()["budgets"]
        assert shown["amounts"]["usd"] == {"limit": 0.05, "used": 0.0, "reserved": 0.0, "remaining": 0.05}
        assert shown["resets_unix_s"] == resets_unix_s("day")
        begun = await api.stranger.post("/v1/runs", json={"question": "?"}, headers=acme)
        assert begun.status_code == 202, begun.text
        await api.door.orchestrator.wait(begun.json()["run_id"])
        refused = await api.stranger.post("/v1/runs", json={"question": "?"}, headers=acme)
        assert refused.status_code == 429, refused.text
        assert 0 < int(refused.headers["retry-after"]) <= 24 * 3600
        assert refused.json()["type"] == "urn:toolfleet:problem:budget-spent-for-now"
        [shown] = (await api.client.get("/v1/budgets/acme")).json()["budgets"]
        assert (shown["amounts"]["usd"]["remaining"], shown["tenant"]) == (0.0, "acme")
        assert (await api.stranger.get("/v1/budgets/acme", headers=acme)).status_code == 403


async def test_G9_who_has_used_up_a_budget_that_never_begins_anew_is_asked_for_payment(settings, provider, budgets):
    await budgets.set("acme", "total", Bounds(tokens=100))
    async with api_of(settings, provider.model()) as api:
        acme = await bearer(api, tenant="acme")
        begun = await api.stranger.post("/v1/runs", json={"question": "?"}, headers=acme)
        await api.door.orchestrator.wait(begun.json()["run_id"])
        refused = await api.stranger.post("/v1/runs", json={"question": "?"}, headers=acme)
        assert (refused.status_code, refused.json()["type"]) == (402, "urn:toolfleet:problem:budget-spent")
        assert "the budget of 100 tokens of tenant acme is used up" in refused.json()["detail"]


async def test_G8_a_tenants_budget_in_dollars_refuses_runs_of_a_model_without_a_price(settings, provider, budgets):
    await budgets.set("acme", "total", Bounds(usd=1.0))
    async with Orchestrator(provider.model("nobodys"), settings=settings) as orchestrator:
        with pytest.raises(UnknownPrice, match="what nobodys costs is not known, so the budget of tenant acme"):
            await orchestrator.run("?", tenant="acme")
    assert provider.asked == []
    assert NAME in settings.prices


@given(st.floats(0, 4e9))
def test_G9_a_budget_begins_anew_at_midnight_and_on_the_first_of_the_month(now_unix_s):
    day, month = resets_unix_s("day", now_unix_s), resets_unix_s("month", now_unix_s)
    assert day is not None
    assert month is not None
    assert now_unix_s < day <= now_unix_s + 24 * 3600
    assert now_unix_s < month <= now_unix_s + 31 * 24 * 3600
    assert day % (24 * 3600) == 0
    assert datetime.fromtimestamp(month, UTC).strftime("%d %H:%M:%S") == "01 00:00:00"
    assert resets_unix_s("total") is None
    assert time.time() < resets_unix_s("day")
