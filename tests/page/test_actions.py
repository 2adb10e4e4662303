"""What people do from the page is done, with the scope that it needs."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window
from tests.page.visitors import SAME, key_with, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")


DEEDS = ("approval_given", "run_resumed", "run_stopped")


async def waiting(served: Api, amount: str = "120") -> str:
    """A run with one call that waits for a person."""
    run_id = await served.begin(f'call pay {{"amount": {amount}}}')
    async with asyncio.timeout(20):
        while not any(call["awaits_approval"] for call in (await run_of(served, run_id))["calls"]):
            await asyncio.sleep(0.02)
    return run_id


async def run_of(served: Api, run_id: str) -> dict:
    return (await served.client.get(f"/v1/runs/{run_id}")).json()


async def test_W16_a_call_is_approved(tab: Window, served: Api):
    run_id = await waiting(served)
    await tab.go(f"/runs/{run_id}")
    await tab.page.click("text=1 call to decide about")
    await tab.page.click("button:text-is('Approve')")
    assert "paid 120" in (await served.ended(run_id))["answer"]


async def test_W16_a_call_is_approved_from_the_list_of_those_that_wait(tab: Window, served: Api):
    run_id = await waiting(served)
    await tab.go("/approvals")
    async with tab.page.expect_navigation(url="**/approvals"):  # the page it is on has that address, too
        await tab.page.click(f"[aria-label='Approve pay of {run_id}.1.0']")
    assert "paid 120" in (await served.ended(run_id))["answer"]
    assert run_id not in await tab.page.content()


async def test_W16_who_decided_and_who_ended_a_run_stands_in_its_history(served: Api):
    run_id = await waiting(served)
    key, _ = await key_with(served, Scope.APPROVE, Scope.RUN, subject="ada")
    async with visitor(served, key) as ada:
        await ada.post(f"/calls/{run_id}.1.0/decide", data={"decision": "approve"}, headers=SAME)
        await served.ended(run_id)
        await ada.post(f"/runs/{run_id}/resume", data={"message": 'call pay {"amount": 5}'}, headers=SAME)
        await ada.post(f"/runs/{run_id}/cancel", data={"reason": "enough"}, headers=SAME)
        shown = (await ada.get(f"/runs/{run_id}")).text
    history = [entry.event for entry in await served.door.looking.store.entries(run_id)]
    by = {event.type: getattr(event, "approval", event).by for event in history if event.type in DEEDS}
    assert all("ada" in by[kind] for kind in DEEDS), by
    assert len(re.findall(r"<strong>[^<]*ada[^<]*</strong>", shown)) == 3


async def test_W16_a_run_is_forked_and_the_original_stays(tab: Window, served: Api):
    run_id = await served.begin('call give_back {"value": "before"}')
    before = await served.ended(run_id)
    await tab.go(f"/runs/{run_id}")
    await tab.page.click("summary:text-is('Fork it')")
    await tab.page.fill("#fork-turn", "1")
    await tab.page.fill("#fork-question", 'call give_back {"value": "after"}')
    await tab.page.click("text=Begin a new run")
    await tab.page.wait_for_selector("text=Forked from")
    forked = tab.page.url.rpartition("/")[2]
    assert forked != run_id
    assert "after" in (await served.ended(forked))["answer"]
    assert await run_of(served, run_id) == before


async def test_W16_a_call_is_denied_with_a_reason_that_the_model_reads(tab: Window, served: Api):
    run_id = await waiting(served)
    await tab.go(f"/calls/{run_id}.1.0")
    await tab.page.fill("#reason", "not before Friday")
    await tab.page.click("button:text-is('Deny')")
    assert "not before Friday" in (await served.ended(run_id))["answer"]


async def test_W16_the_arguments_of_a_call_are_edited_and_go_out_as_written(tab: Window, served: Api):
    run_id = await waiting(served)
    await tab.go(f"/calls/{run_id}.1.0")
    await tab.page.fill("#arguments", '{"amount": 9007199254740993}')
    await tab.page.click("button:text-is('Approve')")
    ended = await served.ended(run_id)
    assert ended["calls"][0]["approval"]["arguments"] == '{"amount": 9007199254740993}'
    assert "paid 9007199254740993" in ended["answer"]


async def test_W16_arguments_that_are_no_object_are_sent_back(served: Api):
    run_id = await waiting(served)
    async with visitor(served, served.local_key.made()) as user:
        form = {"decision": "approve", "arguments": "[1", "as_asked": "{}"}
        assert (await user.post(f"/calls/{run_id}.1.0/decide", data=form, headers=SAME)).status_code == 422
        assert (await user.post(f"/calls/{run_id}.1.0/decide", data={}, headers=SAME)).status_code == 422
    assert (await run_of(served, run_id))["calls"][0]["approval"] is None
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_W16_a_second_decision_is_refused(served: Api):
    run_id = await waiting(served)
    async with visitor(served, served.local_key.made()) as user:
        address = f"/calls/{run_id}.1.0/decide"
        first = await user.post(address, data={"decision": "deny"}, headers=SAME)
        second = await user.post(address, data={"decision": "approve"}, headers=SAME)
    assert (first.status_code, second.status_code) == (303, 409)
    assert "paid" not in (await served.ended(run_id))["answer"]


async def test_W16_a_run_is_cancelled_and_goes_on_with_a_message(tab: Window, served: Api):
    run_id = await waiting(served)
    await tab.go(f"/runs/{run_id}")
    await tab.page.click("summary:text-is('Cancel the run')")
    await tab.page.fill("#cancel-reason", "the wrong question")
    await tab.page.click("text=Cancel the run and its calls")
    assert "the wrong question" in await tab.page.inner_text("#run-head")
    await tab.page.click("summary:text-is('Let it go on')")
    await tab.page.fill("#resume-message", 'call give_back {"value": "again"}')
    await tab.page.click("button:text-is('Let it go on')")
    assert "again" in (await served.ended(run_id))["answer"]


async def test_W16_a_call_is_cancelled_and_its_run_goes_on(tab: Window, served: Api):
    run_id = await served.begin('call fetch_page {"url": "x", "seconds": 60} call give_back {"value": "kept"}')
    call = f"{run_id}.1.0"
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{call}"] >> text=running')
    await tab.page.click(f'[id="row-{call}"] a')
    await tab.page.click("text=Cancel this call")
    ended = await served.ended(run_id)
    assert ended["state"] == "done"
    assert "kept" in ended["answer"]


async def test_W16_a_call_that_failed_is_made_again_in_a_new_run_and_its_neighbour_is_not(tab: Window, served: Api):
    run_id = await served.begin('call give_back {"value": "kept"} and call break_down {"text": "no <b>"}')
    before = await served.ended(run_id)
    await tab.go(f"/calls/{run_id}.1.1")
    await tab.page.click("summary:text-is('Try this call again')")
    assert "The run that you see stays as it is" in await tab.text()
    await tab.page.click("text=Make the call again in a new run")
    await tab.page.wait_for_selector("#run-head >> text=again, by")
    new = await served.ended(tab.page.url.rpartition("/")[2])
    assert new["run_id"] != run_id
    assert [call["result"]["type"] for call in new["calls"]] == ["returned", "failed"]
    assert new["calls"][0]["deadline_unix_s"] is None  # it was not sent again
    assert new["calls"][1]["deadline_unix_s"] is not None
    assert await run_of(served, run_id) == before


async def test_W16_a_form_that_is_sent_twice_makes_a_call_again_once(served: Api):
    run_id = await served.begin('call break_down {"text": "no"}')
    await served.ended(run_id)
    async with visitor(served, served.local_key.made()) as user:
        asked = (await user.get(f"/calls/{run_id}.1.0")).text
        once = re.search(r'name="once" value="(\w+)"', asked)[1]
        led = [
            (await user.post(f"/calls/{run_id}.1.0/retry", data={"once": each}, headers=SAME)).headers["location"]
            for each in (once, once, "x" * 5000)
        ]
        assert (await user.post(f"/calls/{run_id}.1.0/retry")).status_code == 403
    assert led[0] == led[1] != led[2]
    key, _ = await key_with(served, Scope.READ)
    async with visitor(served, key) as reader:
        assert "Try this call again" not in (await reader.get(f"/calls/{run_id}.1.0")).text
        assert (await reader.post(f"/calls/{run_id}.1.0/retry", headers=SAME)).status_code == 403


@pytest.mark.parametrize("scope", [Scope.READ, Scope.PAYLOADS])
async def test_W16_without_its_scope_nothing_is_offered_and_nothing_done(served: Api, scope):
    run_id = await waiting(served)
    key, _ = await key_with(served, scope)
    async with visitor(served, key) as reader:
        assert "Cancel the run" not in (await reader.get(f"/runs/{run_id}")).text
        assert 'value="approve"' not in (await reader.get(f"/calls/{run_id}.1.0")).text
        tried = {
            f"/runs/{run_id}/cancel": {},
            f"/runs/{run_id}/resume": {},
            f"/calls/{run_id}.1.0/cancel": {},
            f"/calls/{run_id}.1.0/decide": {"decision": "approve"},
            "/tools/give_back/call": {"arg.value": "1"},
        }
        for path, form in tried.items():
            assert (await reader.post(path, data=form, headers=SAME)).status_code == 403, path
    assert (await run_of(served, run_id))["calls"][0]["approval"] is None
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_another_tenants_runs_and_calls_are_not_there(served: Api):
    run_id = await waiting(served)
    key, _ = await key_with(served, Scope.RUN, Scope.APPROVE, tenant="other")
    async with visitor(served, key) as other:
        for path in (
            f"/runs/{run_id}",
            f"/runs/{run_id}/live",
            f"/calls/{run_id}.1.0",
            f"/calls/{run_id}.1.0/arguments",
        ):
            assert (await other.get(path)).status_code == 404, path
        for path in (f"/runs/{run_id}/cancel", f"/calls/{run_id}.1.0/cancel", f"/calls/{run_id}.1.0/decide"):
            answer = await other.post(path, data={"decision": "approve"}, headers=SAME)
            assert answer.status_code == 404, path
        assert run_id not in (await other.get("/")).text
        assert run_id not in (await other.get("/runs")).text
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_a_tool_is_called_with_what_its_form_asks_for(tab: Window):
    await tab.go("/tools/fetch_page")
    await tab.page.fill('[name="arg.url"]', "https://example.org/\n")
    await tab.page.click("button.main")
    assert "200 OK" in await tab.page.inner_text("#result")


async def test_a_slow_tool_leads_to_its_job_where_it_can_be_cancelled(tab: Window):
    await tab.go("/tools/elsewhere")
    await tab.page.fill('[name="arg.job"]', "there")
    await tab.page.click("button.main")
    await tab.page.wait_for_url("**/jobs/*")
    assert "elsewhere" in await tab.text()
    await tab.page.click("text=Cancel it")
    assert "cancelled" in await tab.text()


async def test_U2_something_is_said_to_a_run_at_work_and_a_form_that_is_sent_twice_says_it_once(served: Api):
    run_id = await served.begin("call index_folder {}")
    key, _ = await key_with(served, Scope.APPROVE, Scope.RUN, subject="ada")
    async with visitor(served, key) as ada, asyncio.timeout(20):
        while (await run_of(served, run_id))["state"] != "parked":
            await asyncio.sleep(0.02)
        [once] = re.findall(r'name="once" value="(\w+)"', (await ada.get(f"/runs/{run_id}")).text)
        form = {"message": "<b>no more</b>", "interrupt": "", "once": once}
        for _ in range(2):
            assert (await ada.post(f"/runs/{run_id}/say", data=form, headers=SAME)).status_code == 303
        shown = (await ada.get(f"/runs/{run_id}")).text
        assert shown.count("not read by the model yet") == shown.count("&lt;b&gt;no more&lt;/b&gt;") == 1
        form = {"message": "stop", "interrupt": "yes", "once": "2"}
        assert (await ada.post(f"/runs/{run_id}/say", data=form, headers=SAME)).status_code == 303
        assert (await ada.post(f"/runs/{run_id}/say", data={"message": " "}, headers=SAME)).status_code == 422
        ended = await served.ended(run_id)
        shown = (await ada.get(f"/runs/{run_id}")).text
    assert ended["calls"][0]["result"]["kind"] == "cancelled"
    assert [each["content"] for each in ended["messages"] if each["role"] == "user"][1:] == ["<b>no more</b>", "stop"]
    assert ("said more" in shown, "interrupted, and said more" in shown) == (True, True)


async def test_U4_the_page_decides_about_what_it_has_shown(served: Api):
    run_id = await waiting(served)
    long_id = await waiting(served, "1" + "0" * 200)
    call = (await run_of(served, run_id))["calls"][0]
    key, _ = await key_with(served, Scope.APPROVE, subject="ada")
    async with visitor(served, key) as ada:
        path, form = f"/calls/{run_id}.1.0", {"decision": "approve", "as_asked": call["arguments"]}
        shown = (await ada.get(path)).text
        assert re.findall(r'name="digest" value="(\w+)"', shown) == [call["digest"]]
        listed = (await ada.get("/approvals")).text
        assert f"Approve pay of {run_id}.1.0" in listed
        assert f"Approve pay of {long_id}.1.0" not in listed, "what is not shown whole is not approved there"
        other = {**form, "arguments": call["arguments"], "digest": "0" * 64}
        assert (await ada.post(f"{path}/decide", data=other, headers=SAME)).status_code == 409
        assert (await ada.post(f"{path}/decide", data={**form, "digest": "<b>"}, headers=SAME)).status_code == 422
        fitting = {**other, "digest": call["digest"]}
        assert (await ada.post(f"{path}/decide", data=fitting, headers=SAME)).status_code == 303
    ended = await served.ended(run_id)
    assert ended["calls"][0]["approval"]["digest"] == call["digest"]
    await served.client.post(f"/v1/runs/{long_id}/cancel")
