"""Times are the viewer's, and what is some time ago grows older while it is looked at."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window, window

pytestmark = pytest.mark.asyncio(loop_scope="module")

KOLKATA = {"timezone_id": "Asia/Kolkata", "locale": "en-GB"}


async def test_moments_are_told_in_the_viewers_own_zone_and_in_utc_without_javascript(tab: Window, served: Api):
    run_id = await served.begin('call narrate {"text": "now"}')
    await served.ended(run_id)
    call = f"/calls/{run_id}.1.0"
    browser, key = tab.page.context.browser, served.local_key.made()
    async with (
        window(browser, served.url, key, **KOLKATA) as there,
        window(browser, served.url, key, java_script_enabled=False) as plain,
    ):
        await there.go(call)
        await plain.go(call)
        began = "#call-log h3 time"
        stored = await plain.page.get_attribute(began, "datetime")
        at = datetime.fromisoformat(stored)
        assert await plain.page.inner_text(began) == f"{at:%Y-%m-%d %H:%M:%S} UTC"
        told = await there.page.inner_text(began)
        assert told[:19] == f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%Y-%m-%d %H:%M:%S}"
        assert told[19:] in {" IST", " GMT+5:30"}
        line = await there.page.inner_text("#call-log .log time")
        assert re.fullmatch(r"\d\d:\d\d:\d\d", line)
        assert line in await there.page.get_attribute("#call-log .log time", "title")
        assert not there.wrong


async def test_what_is_some_time_ago_grows_older_while_it_is_looked_at(tab: Window, served: Api):
    await served.ended(await served.begin("How old is this?"))
    await tab.go("/runs")
    first = await tab.page.inner_text("#runs-list tr:first-child time")
    assert re.fullmatch(r"\d+ s ago", first)
    await tab.page.wait_for_function("was => document.querySelector('#runs-list time').innerText !== was", arg=first)
