"""Versions of a tool on the page: which are live, who tries which, and that one was taken back, by whom and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from tests.http.fleet_of_doors import WAIT_S, Api, rehearsed_api
from tests.page.browsers import window
from tests.page.test_pages import NARROW, told
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.cli.full_screen import Room
from toolfleet.orchestrator.doors.cli.watch_screen import Seen, frame
from toolfleet.orchestrator.doors.http.key_store import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {"PYTHONPATH": str(Path(__file__).parents[1] / "fleet")}

ASKED = " ".join(f'call shaky {{"number": {number}}}' for number in range(15))


@pytest.fixture(scope="module")
def shaky_fleet() -> Iterator[LocalFleet]:
    with LocalFleet(["shaky_tools"], pools={"io": 1}, environment=TOOLS) as running:
        running.start_worker("io", environment={"VERSION_OF_TOOLS": "2", "SHAKY_FAILS": "100"})
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shaky(shaky_fleet: LocalFleet) -> AsyncIterator[Api]:
    async with rehearsed_api(shaky_fleet.settings) as running:
        yield running


async def test_U6_a_trial_is_shown_and_that_it_was_taken_back_with_who_when_and_why(browser: Browser, shaky: Api):
    versions = shaky.door.orchestrator.versions
    await versions.share("shaky", 2, 1.0, by="ada <b>\u202e")
    async with asyncio.timeout(WAIT_S):
        while [each.live for each in await versions.list()] != [(1, 2)]:
            await asyncio.sleep(0.05)
    async with window(browser, shaky.url, shaky.local_key.made(), viewport=NARROW) as tab:
        await tab.go("/tools")
        text = await tab.text()
        assert "100 % of new runs get version 2" in text
        assert "share by ada <b>" in text
        assert "\u202e" not in text
        await shaky.ended(await shaky.begin(ASKED))
        async with asyncio.timeout(WAIT_S):
            while (await versions.list())[0].said.share:
                await asyncio.sleep(0.05)
        for path in ("/tools", "/tools/shaky"):
            await tab.go(path)
            text = await tab.text()
            assert "no new run gets version 2" in text
            assert "taken back" in text
            assert "toolfleet" in text
            assert "15 of 15 calls have failed" in text
            assert await tab.page.locator("time").count() >= 1
            assert not told((await Axe().run(tab.page)).response), path
            assert await tab.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path
        assert not tab.wrong
    seen = Seen("fleet")
    seen.note(await shaky.door.looking.fleet.standing())
    lines = frame(seen, Room(200, 60)).plain.splitlines()
    [line] = [line for line in lines if line.startswith("shaky")]
    assert line.split()[:4] == ["shaky", "1,", "2", "1"]
    assert "2: 15 of 15" in line
    assert "taken back by toolfleet 15 of 15 calls have failed" in line


async def test_U6_who_may_not_administer_sees_which_versions_are_live_and_no_more(browser: Browser, shaky: Api):
    await shaky.door.orchestrator.versions.share("shaky", 2, 0.25, by="ada")
    key, made = await shaky.door.keyring.add(tenant="looks", scopes=(Scope.READ,))
    async with window(browser, shaky.url, key) as tab:
        for path in ("/tools", "/tools/shaky"):
            await tab.go(path)
            text = await tab.text()
            assert "1, 2" in text
            assert "ada" not in text
            assert "25 %" not in text
    await shaky.door.keyring.revoke(made.key_id)
