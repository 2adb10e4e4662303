"""What is listed: agents as a tree, dead letters, slow calls; and all of it again after a restart."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.http.fleet_of_doors import Api, api_of
from tests.page.browsers import Window
from tests.page.visitors import SAME, key_with, visitor
from toolfleet.calls import ToolCall
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_W7_a_tree_of_agents_shows_what_each_branch_has_come_to(tab: Window, served: Api):
    helper = Agent("helper", "Does one thing.", "You help.", tools=["give_back", "break_down"])
    child = 'call give_back {"value": 1} then call break_down {"text": "no"}'
    asked = " and ".join(f"call helper {json.dumps({'task': child})}" for _ in range(5))
    async with RehearsalServer() as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        async with Orchestrator(model, agents=[helper], settings=served.door.settings) as orchestrator:
            run = await orchestrator.run(asked)
    await tab.go(f"/runs/{run.run_id}")
    await tab.page.click("text=Agents, as a tree")
    sums = await tab.page.locator("dl.sums").all_inner_texts()
    calls, failed, tokens = ([int(re.search(rf"{name}\s*(\d+)", text)[1]) for text in sums] for name in FIGURES)
    assert (calls[0], calls[1:]) == (15, [2] * 5)
    assert (failed[0], sum(failed[1:])) == (5, 5)
    assert tokens[0] == run.usage.total_tokens > sum(tokens[1:]) > 0


FIGURES = ("calls", "failed", "tokens")


async def buried(served: Api, count: int) -> str:
    """So many letters about calls that crashed, of a run of their own."""
    door, run_id = served.door, f"dead{time.monotonic_ns():x}"
    pipeline = door.client.pipeline(transaction=False)
    for n in range(count):
        call = ToolCall(
            call_id=f"{run_id}.1.{n}",
            run_id=run_id,
            tool="give_back",
            arguments=json.dumps({"value": n}),
            deadline_unix_s=0,
            reply_to="x",
        )
        text, mac = door.seal.close_call(call)
        fields = {"reason": f"crashed in {run_id}", "task": call.tool, "id": call.call_id, "text": text, "mac": mac}
        pipeline.xadd(door.settings.keys.dead_letters(), fields)
    await pipeline.execute()
    return run_id


async def test_W10_letters_are_counted_confirmed_and_put_back_each_once(tab: Window, served: Api):
    run_id = await buried(served, 120)
    await tab.go(f"/dead-letters?tool=give_back&reason={run_id}")
    assert "120 letters like this" in await tab.text()
    await tab.page.click("text=Put back all 120 …")
    assert "Put back 120 letters of give_back" in await tab.text()
    await tab.page.click("text=Yes, put them back")
    assert "120 letters put back" in await tab.page.inner_text(".banner")
    keys = served.door.settings.keys
    for n in range(120):
        while await served.door.client.get(keys.result(f"{run_id}.1.{n}")) is None:
            pass
    await tab.go(f"/dead-letters?reason={run_id}")
    assert "None is like this" in await tab.text()


async def test_W10_letters_are_dropped_once_that_was_confirmed_and_not_if_others_came(served: Api):
    run_id = await buried(served, 3)
    form = {"tool": "", "reason": run_id, "expected": "3", "action": "drop"}
    async with visitor(served, served.local_key.made()) as user:
        asked = await user.post("/dead-letters", data=form, headers=SAME)
        assert "Yes, drop them" in asked.text
        assert "3 letters like this" in (await user.get("/dead-letters", params={"reason": run_id})).text
        other = await user.post("/dead-letters", data={**form, "expected": "2", "confirmed": "yes"}, headers=SAME)
        assert other.status_code == 409
        dropped = await user.post("/dead-letters", data={**form, "confirmed": "yes"}, headers=SAME)
        assert "3 letters dropped" in dropped.text
    key, _ = await key_with(served, Scope.RUN, Scope.APPROVE)
    async with visitor(served, key) as runner:
        assert (await runner.get("/dead-letters")).status_code == 403
        assert (await runner.post("/dead-letters", data=form, headers=SAME)).status_code == 403


async def test_W4_of_a_call_that_runs_its_worker_its_lease_and_its_last_sign_of_life_are_told(tab: Window, served: Api):
    run_id = await served.begin('call fetch_page {"url": "x", "seconds": 60}')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=running')
    await tab.go(f"/calls/{run_id}.1.0")
    facts = await tab.page.inner_text("dl.facts")
    for name in ("Worker", "Last sign of life", "Lease", "Attempt", "Sent"):
        assert name in facts
    assert re.search(r"io1-\S+, for", facts)
    await served.client.post(f"/v1/runs/{run_id}/cancel")


AGE = r'data-age="[\d.]+"|[\d.]+ (ms|s|min)( \d+ s)? ago'


async def test_W9_what_was_visible_still_is_after_the_server_was_started_again(page_fleet, tab: Window, served: Api):
    run_id = await served.begin('call give_back {"value": "kept"}')
    await served.ended(run_id)
    paths = (f"/runs/{run_id}", f"/calls/{run_id}.1.0", "/runs", f"/calls/{run_id}.1.0/result")

    async def seen(api: Api) -> list[str]:
        async with visitor(api, api.local_key.made()) as user:
            return [re.sub(AGE, "", (await user.get(path)).text) for path in paths]

    before = await seen(served)
    async with api_of(page_fleet.settings) as again:
        assert await seen(again) == before


async def test_a_slow_call_is_among_the_jobs_with_its_progress(tab: Window, served: Api):
    run_id = await served.begin('call index_folder {"steps": 100, "step_seconds": 0.5} then fetch')
    await tab.go(f"/runs/{run_id}")
    await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"] >> text=running')
    async with visitor(served, served.local_key.made()) as user:
        while "file " not in (text := (await user.get("/jobs")).text):
            pass
    assert "index_folder" in text
    await served.client.post(f"/v1/runs/{run_id}/cancel")
