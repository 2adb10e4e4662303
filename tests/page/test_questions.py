"""What tools ask people: seen where one looks at the run or the call, and answered there."""

from __future__ import annotations

import asyncio

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window, window
from tests.page.visitors import key_with, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_U3_a_question_is_seen_at_its_run_while_one_looks_and_answered_at_its_call(tab: Window, served: Api):
    run_id = await served.begin('call pay {"amount": 1} then call transfer {"amount": 5} then fetch')
    call_id = f"{run_id}.2.0"
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector("#run-head .asks >> text=waits for approval")
    await tab.page.wait_for_selector("#actions >> text=1 call to decide about")
    await served.client.post(f"/v1/runs/{run_id}/approvals", json={"call_id": f"{run_id}.1.0", "granted": True})
    await tab.page.wait_for_selector("#run-head .asks >> text=From which <b>account</b>?")
    await tab.page.wait_for_selector("#actions >> text=to decide about", state="detached")
    await tab.page.wait_for_selector(f'[id="row-{call_id}"] >> text=asks a person')
    await tab.page.click("#run-head .asks a")
    await tab.page.click("#call-questions button:has-text('checking')")
    await tab.page.wait_for_selector('#call-questions >> text=answered "checking"')
    await tab.page.fill('#call-questions [name="answer"]', '"for <i>tea</i>"')
    await tab.page.evaluate("document.activeElement.blur()")
    await asyncio.sleep(5)  # news of the call come every few seconds
    assert await tab.page.input_value('#call-questions [name="answer"]') == '"for <i>tea</i>"'
    await tab.page.click("#call-questions button:text-is('Answer')")
    await tab.page.wait_for_selector("#call-result >> text=5 from checking: for <i>tea</i>")
    await served.ended(run_id)
    await tab.go(f"/runs/{run_id}")
    bars = await tab.page.get_attribute(f'[id="row-{call_id}"] svg.bars', "aria-label")
    assert bars.count("waited for a person for") == 2
    assert "queued" not in bars


async def test_U3_who_may_not_answer_sees_that_something_is_asked_and_no_form(tab: Window, served: Api):
    run_id = await served.begin('call transfer {"amount": 5} then fetch')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector("#run-head .asks >> text=asks a person")
    await tab.go("/")
    await tab.page.wait_for_selector("#states >> text=asks a person")
    key, _ = await key_with(served, Scope.READ)
    async with visitor(served, key) as looker:
        for path in (f"/runs/{run_id}", f"/calls/{run_id}.1.0", "/approvals"):
            shown = (await looker.get(path)).text
            assert "asks a person" in shown or path == "/approvals"
            assert "account" not in shown
            assert "hidden (26 bytes)" in shown
            assert "/answer" not in shown
    await served.client.post(f"/v1/runs/{run_id}/cancel")
    await served.ended(run_id)
    assert await served.door.looking.questions.count(tenant="") == 0


async def test_without_javascript_a_question_is_answered_and_its_schema_can_be_read(tab: Window, served: Api):
    run_id = await served.begin('call transfer {"amount": 6} then fetch')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector("#run-head .asks >> text=asks a person")
    browser = tab.page.context.browser
    async with window(browser, served.url, served.local_key.made(), java_script_enabled=False) as plain:
        await plain.go(f"/calls/{run_id}.1.0")
        await plain.page.click("button:has-text('savings')")
        async with asyncio.timeout(20):
            while not await plain.page.locator("#call-questions textarea").count():
                await plain.go(f"/calls/{run_id}.1.0")
        await plain.page.click("summary:text-is('What it may hold')")
        assert '"anyOf"' in await plain.page.inner_text("#call-questions pre")
        await plain.page.fill('[name="answer"]', "7")
        await plain.page.click("#call-questions button:text-is('Answer')")
    assert "6 from savings: 7" in (await served.ended(run_id))["answer"]
