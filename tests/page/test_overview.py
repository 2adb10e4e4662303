"""What the overview says beside queues, workers and the newest runs: states, limits, budgets; and to whom."""

from __future__ import annotations

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window, window
from tests.page.visitors import key_with
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.run.accounts import Bounds

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_states_limits_and_budgets_are_on_the_overview_as_soon_as_there_are_any(tab: Window, served: Api):
    run_id = await served.begin("How many states are there?")
    await served.ended(run_id)
    await tab.go("/")
    await tab.page.wait_for_selector("#live >> text=Live")
    bounds = await tab.page.inner_text("#bounds")
    assert "concurrency 50" in bounds
    assert "Budgets" not in bounds

    await served.door.orchestrator.limits.set("fetch_page", concurrency=7)
    budgets = TenantBudgets(served.door.client, served.door.settings)
    await budgets.set("acme <b>", "day", Bounds(usd=5))
    try:
        await tab.page.wait_for_selector("#bounds >> text=concurrency 7")
        await tab.page.wait_for_selector('#bounds tr:has-text("acme <b>"):has-text("5.0000")')
        await tab.page.click("#states a:has-text('done')")
        assert tab.page.url.endswith("/runs?state=done")
        assert run_id[:8] in await tab.page.content()
    finally:
        await served.door.orchestrator.limits.reset("fetch_page")
        await budgets.remove("acme <b>", "day")


async def test_a_tenant_sees_its_own_budgets_and_nothing_of_the_fleets(tab: Window, served: Api):
    budgets = TenantBudgets(served.door.client, served.door.settings)
    await served.door.orchestrator.limits.set("fetch_page", concurrency=7)
    begun = await served.door.orchestrator.run("Ours", tenant="ours")
    await budgets.set("ours", "day", Bounds(usd=5))
    await served.ended(await served.begin("Whose run is this?"))
    await budgets.set("theirs", "day", Bounds(usd=6))
    key, _ = await key_with(served, Scope.READ, tenant="ours")
    try:
        async with window(tab.page.context.browser, served.url, key) as theirs:
            await theirs.go("/")
            told = await theirs.text()
            assert await theirs.page.inner_text("#states .count") == "1"
            await theirs.page.click("#figures a >> nth=0")
            listed = await theirs.text()
    finally:
        await served.door.orchestrator.limits.reset("fetch_page")
        await budgets.remove("ours", "day")
        await budgets.remove("theirs", "day")

    assert "5.0000" in told
    assert "6.0000" not in told
    assert "concurrency" not in told
    assert (listed.count(begun.run_id), "Whose run is this?" in listed) == (1, False)
