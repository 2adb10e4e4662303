"""Schedules on the page: what is asked when, what the newest ticks have begun, and a pause."""

from __future__ import annotations

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_U10_a_schedule_is_shown_with_its_next_tick_leads_to_its_runs_and_is_paused(tab: Window, served: Api):
    schedules = served.door.orchestrator.schedules
    made = await schedules.add("0 8 * * 1-5", "What is <b>new</b>\u202e?", tz="Europe/Berlin", tools=[])
    run_id = await schedules.run(made.schedule_id)
    await served.door.orchestrator.wait(run_id)
    await tab.go("/schedules")
    text = await tab.text()
    assert "What is <b>new</b>" in text
    assert "\u202e" not in text
    assert "Europe/Berlin" in text
    await tab.page.click("button:has-text('Pause')")
    await tab.page.wait_for_selector("text=paused")
    assert (await schedules.get(made.schedule_id)).is_paused
    await tab.page.click("a:has-text('its run')")
    await tab.page.wait_for_selector("h1")
    assert run_id in tab.page.url
    await schedules.remove(made.schedule_id)
