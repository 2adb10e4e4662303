"""What is shown is what is stored: exactly, harmlessly, and no more than the key allows."""

from __future__ import annotations

import json

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window
from tests.page.visitors import key_with, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXACT = '{"value":{"z":9007199254740993,"":"empty","a":0.10,"z2":1e400,"b":[]}}'

EVIL = "<script>alert(1)</script> \x1b[31mred \u202eevil\u202c <img src=x onerror=alert(2)>"


async def test_W12_arguments_are_shown_and_copied_exactly(tab: Window, served: Api):
    run_id = await served.begin(f"call give_back `{EXACT}`")
    await served.ended(run_id)
    await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await tab.go(f"/calls/{run_id}.1.0")
    shown = await tab.page.inner_text("pre >> nth=0")
    assert "".join(shown.split()) == EXACT
    assert '"z": 9007199254740993,\n' in shown
    await tab.page.click("[aria-labelledby=arguments-title] >> text=Copy")
    await tab.page.wait_for_selector("#live >> text=Copied")
    assert await tab.page.evaluate("navigator.clipboard.readText()") == EXACT


async def test_what_tools_log_is_text_and_hidden_from_a_key_that_may_only_look(tab: Window, served: Api):
    run_id = await served.begin(f'call narrate {{"text": {json.dumps(EVIL)}}}')
    await served.ended(run_id)
    await tab.go(f"/calls/{run_id}.1.0")
    said = await tab.page.inner_text("#call-log")
    assert "<script>alert(1)</script> \\x1b[31mred \\u202eevil" in said
    assert "warning" in said
    key, _ = await key_with(served, Scope.READ)
    async with visitor(served, key) as looker:
        shown = (await looker.get(f"/calls/{run_id}.1.0")).text
    assert f"hidden ({len(EVIL.encode())} bytes)" in shown
    assert "alert(1)" not in shown


async def test_W13_what_tools_and_users_write_is_text_and_nothing_invisible_is_left(tab: Window, served: Api):
    alarms: list[str] = []
    tab.page.on("dialog", lambda dialog: alarms.append(dialog.message))
    said = json.dumps(EVIL)
    run_id = await served.begin(f'{EVIL} call break_down {{"text": {said}}} call give_back {{"value": {said}}}')
    await served.ended(run_id)
    for path in (f"/runs/{run_id}", f"/calls/{run_id}.1.0", f"/calls/{run_id}.1.1", "/runs", "/"):
        await tab.go(path)
        text = await tab.text()
        assert "<script>alert(1)</script>" in text, path
        assert "\\x1b[31m" in text or "\\u001b[31m" in text, path
        assert "\\u202e" in text, path
        assert not {"\x1b", "\u202e", "\u202c"} & set(await tab.page.content()), path
        assert await tab.page.locator("main img, main script").count() == 0
    assert not alarms


async def test_W11_a_key_that_may_only_look_sees_how_long_things_are_and_not_what(served: Api):
    secret = "the-recipe-of-the-house"
    run_id = await served.begin(f'call give_back {{"value": "{secret}"}} call pay {{"amount": 1}}', max_turns=3)
    key, _ = await key_with(served, Scope.READ)
    async with visitor(served, key) as reader:
        call = f"/calls/{run_id}.1.0"
        for path in ("/", "/runs", f"/runs/{run_id}", call, f"/runs/{run_id}/conversation", f"/runs/{run_id}/timeline"):
            text = (await reader.get(path)).text
            assert secret not in text, path
            assert "pay" in text or path.startswith("/calls") or "hidden (" in text, path
        assert "hidden (" in (await reader.get(call)).text
        for path in (f"{call}/arguments", f"{call}/result"):
            refused = await reader.get(path)
            assert refused.status_code == 403
            assert secret not in refused.text
        async with reader.stream("GET", f"/runs/{run_id}/live") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert secret not in line
                    assert "hidden (" in line
                    break
        found = await reader.get(f"/runs/{run_id}?text={secret}")
        assert "0 calls of 2" in found.text
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_W2_four_characters_or_any_id_lead_to_what_they_mean(tab: Window, served: Api):
    run_id = await served.begin('call elsewhere {"job": "there"}', patience_s=0)
    async with visitor(served, served.local_key.made()) as user:

        async def leads(text: str) -> str:
            answer = await user.get("/find", params={"q": f" {text} "})
            return answer.headers.get("location", str(answer.status_code))

        await tab.go(f"/runs/{run_id}")
        await tab.page.wait_for_selector(f'[id="row-{run_id}.1.0"]')
        assert await leads(run_id) == f"/runs/{run_id}"
        assert await leads(run_id[:8]) == f"/runs/{run_id}"
        assert await leads(f"{run_id}.1.0") == f"/calls/{run_id}.1.0"
        [call] = (await served.client.get(f"/v1/runs/{run_id}")).json()["calls"]
        assert await leads(call["requested_id"]) == f"/calls/{run_id}.1.0"
        assert await leads("nothing-has-this") == "404"
        assert await leads("*") == "404"
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_W3_a_run_of_two_thousand_calls_comes_in_pieces_and_can_be_sifted(tab: Window, served: Api):
    calls = " ".join(f'call give_back {{"value": {n}}}' for n in range(1990))
    failing = " ".join('call break_down {"text": "disk full"}' for _ in range(10))
    run_id = await served.begin(f"{calls} {failing}", limits={"calls": 3000, "calls_per_tool": 3000})
    ended = await served.ended(run_id)
    assert len(ended["calls"]) == 2000, ended["reason"]
    async with visitor(served, served.local_key.made()) as user:
        whole = await user.get(f"/runs/{run_id}")
        assert len(whole.content) < 1_000_000
        sifted = await user.get(f"/runs/{run_id}", params={"text": "DISK FULL", "state": "failed"})
        assert "10 calls of 2000" in sifted.text
        by_tool = await user.get(f"/runs/{run_id}", params={"tool": "give_back"})
        assert "1990 calls of 2000" in by_tool.text
    await tab.go(f"/runs/{run_id}")
    rows = tab.page.locator("#rows > li.call")
    assert await rows.count() < 200
    # Each time that the end of the list is reached, it goes on.
    for count in (150, 250, 350):
        await tab.page.locator('[data-more="rows"]').scroll_into_view_if_needed()
        await rows.nth(count).wait_for(state="attached")
    ids = await tab.page.locator("#rows > li").evaluate_all("rows => rows.map(row => row.id)")
    assert len(set(ids)) == len(ids)
    await tab.page.click("text=first failure")
    assert "disk full" in await tab.text()
    await tab.go(f"/runs/{run_id}")
    await tab.page.click("text=slowest")
    assert "Took" in await tab.text()


async def test_W1_a_page_of_runs_is_a_handful_of_commands_and_no_search(served: Api):
    async with visitor(served, served.local_key.made()) as user:
        await user.get("/runs")
        async with served.door.client.monitor() as monitor:
            assert (await user.get("/runs")).status_code == 200
            await served.door.client.echo("that was the page")
            seen = []
            async for said in monitor.listen():
                if said["command"].startswith("ECHO"):
                    break
                seen.append(said)
        own = [said["command"].split()[0].upper() for said in seen if said["client_type"] != "lua"]
        assert not {"SCAN", "KEYS", "ZSCAN", "HSCAN"} & set(own)
        pages = [said for said in seen if "runs" in said["command"] and said["client_type"] != "lua"]
        assert len(pages) <= 5, pages
