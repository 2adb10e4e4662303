"""What happens is seen while it happens, by any number of people, for one reading."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, aclosing

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window
from tests.page.visitors import visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_run_is_seen_as_it_goes_on(tab: Window, served: Api):
    run_id = await served.begin('call pay {"amount": 7} then call fetch_page {"url": "https://example.org"}')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=waits for approval')
    allowed = {"call_id": f"{run_id}.1.0", "granted": True}
    assert (await served.client.post(f"/v1/runs/{run_id}/approvals", json=allowed)).status_code == 200
    await tab.page.wait_for_selector(f'[id="row-{run_id}.2.0"] >> text=succeeded')
    await tab.page.wait_for_selector("#run-head >> text=done")
    assert "paid 7" in await tab.page.inner_text("#messages")


async def test_what_a_tool_logs_is_seen_while_it_runs(tab: Window, served: Api):
    run_id = await served.begin('call narrate {"text": "so far so good", "seconds": 60}')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=running')
    await tab.go(f"/calls/{run_id}.1.0")
    await tab.page.wait_for_selector("#call-log >> text=so far so good")
    await tab.page.click("text=Cancel this call")
    await tab.page.wait_for_selector("#call-result >> text=cancelled")
    await served.ended(run_id)


async def test_a_job_is_seen_going_on_in_the_list_and_by_itself_and_its_end_too(tab: Window, served: Api):
    run_id = await served.begin('call index_folder {"steps": 1000, "step_seconds": 0.3} then fetch')
    await tab.go("/jobs")
    row = f'#jobs tr:has-text("{run_id[:12]}")'
    await tab.page.wait_for_selector(f"{row} >> text=of 1000")
    told = await tab.page.inner_text(f"{row} .sub >> nth=1")
    await tab.page.click(f"{row} th > a")
    await tab.page.wait_for_url("**/jobs/*")
    await tab.page.wait_for_function("was => !document.querySelector('.progress').innerText.includes(was)", arg=told)
    await served.client.post(f"/v1/runs/{run_id}/cancel")
    await tab.page.wait_for_selector("h1 >> text=cancelled")
    assert await tab.page.locator("text=Cancel it").count() == 0


async def test_a_call_that_begins_to_wait_appears_among_those_to_decide_about(tab: Window, served: Api):
    await tab.go("/approvals")
    await tab.page.wait_for_selector("#live >> text=Live")
    run_id = await served.begin('call pay {"amount": 11}')
    await tab.page.click(f"[aria-label='Deny pay of {run_id}.1.0']")
    await served.ended(run_id)


async def test_the_heading_of_a_call_and_what_can_be_done_change_with_it(tab: Window, served: Api):
    run_id = await served.begin('call fetch_page {"url": "x", "seconds": 60}')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=running')
    await tab.go(f"/calls/{run_id}.1.0")
    await tab.page.wait_for_selector("h1 >> text=running")
    assert await tab.page.locator("text=Cancel this call").count() == 1
    await served.client.post(f"/v1/runs/{run_id}/cancel")
    await tab.page.wait_for_selector("h1 >> text=cancelled")
    await tab.page.wait_for_selector("text=Cancel this call", state="detached")


async def test_the_overview_tells_of_a_new_run_by_itself(tab: Window, served: Api):
    await tab.go("/")
    await tab.page.wait_for_selector("#live >> text=Live")
    await served.begin("Is this seen?")
    await tab.page.wait_for_selector("#newest-runs >> text=Is this seen?")


async def test_the_page_goes_on_where_its_server_was_away(tab: Window, served: Api):
    run_id = await served.begin('call pay {"amount": 8}')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=waits for approval')
    for stream in set(served.door.streams):
        stream.cancel()
    await served.client.post(f"/v1/runs/{run_id}/cancel")
    await tab.page.wait_for_selector("#run-head >> text=cancelled")


async def counted(served: Api, viewers: int, run_id: str) -> int:
    """The commands that Redis carries out in three seconds while so many look on."""
    async with AsyncExitStack() as stack:
        user = await stack.enter_async_context(visitor(served, served.local_key.made()))
        for path in ("/overview/live", f"/runs/{run_id}/live"):
            for _ in range(viewers):
                stream = await stack.enter_async_context(user.stream("GET", path))
                assert stream.status_code == 200
        await asyncio.sleep(1)
        before = await served.door.client.info("stats")
        await asyncio.sleep(3)
        after = await served.door.client.info("stats")
    return int(after["total_commands_processed"] - before["total_commands_processed"])


async def test_W14_twenty_five_who_look_on_ask_no_more_of_redis_than_one(served: Api):
    run_id = await served.begin('call pay {"amount": 9}')
    alone = await counted(served, 1, run_id)
    together = await counted(served, 25, run_id)
    assert together < alone * 1.5 + 20
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_W16_who_comes_after_a_decision_is_not_shown_what_others_were_shown_before_it(served: Api):
    """A page that had just been rendered without the call was given the list that still had it, for three seconds."""

    async def first_told(user):
        async with user.stream("GET", "/approvals/live") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))["waiting"]

    run_id = await served.begin('call pay {"amount": 9}')
    async with visitor(served, served.local_key.made()) as user:
        while run_id not in (await user.get("/approvals")).text:
            await asyncio.sleep(0.02)
        async with aclosing(first_told(user)) as others, aclosing(first_told(user)) as news:
            assert run_id in await anext(others)
            allowed = {"call_id": f"{run_id}.1.0", "granted": True}
            assert (await served.client.post(f"/v1/runs/{run_id}/approvals", json=allowed)).status_code == 200
            assert run_id not in await anext(news)
