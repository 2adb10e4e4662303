"""Every page in a real browser: it loads without a complaint, and can be used by keyboard, narrow, dark, scriptless."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window, window
from toolfleet.orchestrator.webhooks.records import Endpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = (
    'call fetch_page {"url": "https://example.org"} call break_down {"text": "no such file"} '
    'then call give_back {"value": [1]}'
)

NARROW = {"width": 380, "height": 800}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(served: Api) -> list[str]:
    """Each page, with something on it."""
    webhooks = served.door.looking.webhooks
    endpoint = Endpoint(endpoint_id="we_shown", url="https://10.0.0.1/hooks", created_unix_s=0.0)
    await webhooks.endpoints.put(endpoint)
    done = await served.begin(ASKED, webhook="we_shown")
    await served.ended(done)
    waiting = await served.begin('call pay {"amount": 120}')
    await until_it_waits(served, waiting)
    async with asyncio.timeout(20):
        while not await webhooks.outbox.attempts("we_shown"):
            await asyncio.sleep(0.02)
        # Due again at once, and nobody wants it any more: it is given up.
        await webhooks.endpoints.put(endpoint.model_copy(update={"disabled": "it answered 410 (gone)"}))
        due, client = served.door.settings.keys.webhooks_due(), served.door.client
        while not await webhooks.outbox.dead(""):
            for name in await client.zrange(due, 0, -1):
                await client.zadd(due, {name: 1}, xx=True)
            await asyncio.sleep(0.02)
    return [
        "/",
        "/runs",
        "/runs?state=done",
        f"/runs/{done}",
        f"/runs/{waiting}",
        f"/calls/{done}.1.0",
        f"/calls/{done}.1.1",
        f"/calls/{waiting}.1.0",
        "/approvals",
        "/jobs",
        "/dead-letters",
        "/webhooks",
        f"/runs/{done}/tree",
        f"/runs/{done}/conversation?first=1",
        "/tools",
        "/tools/give_back",
        "/tools/pay",
        "/find?q=nothing",
        "/sign-in",
    ]


async def until_it_waits(served: Api, run_id: str) -> None:
    async with asyncio.timeout(20):
        while not (await served.client.get(f"/v1/runs/{run_id}")).json()["calls"][:1]:
            await asyncio.sleep(0.02)
        while not (await served.client.get(f"/v1/runs/{run_id}")).json()["calls"][0]["awaits_approval"]:
            await asyncio.sleep(0.02)


def told(found) -> list[str]:
    return [f"{each['id']}: {node['html'][:160]}" for each in found["violations"] for node in each["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_W15_every_page_loads_without_a_complaint_and_passes_axe(browser: Browser, served: Api, paths, theme):
    async with window(browser, served.url, served.local_key.made(), color_scheme=theme, viewport=NARROW) as tab:
        for path in paths:
            await tab.go(path)
            assert path != "/webhooks" or "Given up" in await tab.text()
            assert not told((await Axe().run(tab.page)).response), path
            width = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= NARROW["width"], f"{path} is {width} wide"
        # The browser itself says so where a look-up finds nothing.
        assert [each for each in tab.wrong if "404" not in each] == []


async def test_W15_without_javascript_everything_can_be_read_and_done(browser: Browser, served: Api, paths):
    async with window(browser, served.url, served.local_key.made(), java_script_enabled=False) as tab:
        for path in paths:
            await tab.go(path)
            assert await tab.page.locator("h1").count() == 1
        run = next(path for path in paths if path.startswith("/runs/"))
        await tab.go(run)
        text = await tab.text()
        assert "no such file" in text
        assert "failed" in text
        await tab.page.click("text=first failure")
        assert "break_down" in await tab.text()
        await tab.go("/tools/give_back")
        await tab.page.fill('[name="arg.value"]', "[9007199254740993]")
        await tab.page.click("button.main")
        assert "9007199254740993" in await tab.page.inner_text("#result")


async def test_W15_by_keyboard_alone_a_failure_is_found(browser: Browser, served: Api, paths):
    run = next(path for path in paths if path.startswith("/runs/"))
    async with window(browser, served.url, served.local_key.made()) as tab:
        await tab.go("/")
        await tab.page.keyboard.press("Tab")
        assert await focused(tab) == "Skip to the content"
        await reach(tab, "Run, call or handle")
        await tab.page.keyboard.type(run.removeprefix("/runs/")[:6])
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url(f"**{run}")
        await reach(tab, "first failure")
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url("**/calls/*")
        assert "no such file" in await tab.text()


async def focused(tab: Window) -> str:
    return await tab.page.evaluate("document.activeElement.innerText || document.activeElement.placeholder || ''")


async def reach(tab: Window, name: str) -> None:
    for _ in range(40):
        if await focused(tab) == name:
            return
        await tab.page.keyboard.press("Tab")
    pytest.fail(f"nothing called {name!r} is reached with Tab")


async def test_W15_at_380_pixels_a_figure_says_what_it_is_and_the_page_that_is_open_is_in_sight(
    browser: Browser, served: Api, paths
):
    async with window(browser, served.url, served.local_key.made(), viewport=NARROW) as tab:
        await tab.go("/schedules")
        box = await tab.page.locator("nav [aria-current]").bounding_box()
        assert box
        assert 0 <= box["x"] <= box["x"] + box["width"] <= NARROW["width"]
        for path in ("/", "/runs", "/tools"):
            await tab.go(path)
            cells = tab.page.locator("table.rows-narrow td.n:not(:has(time))")
            labels = await cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
            assert labels
            assert "none" not in labels, path


async def test_what_is_not_there_is_a_page_with_a_way_back(tab: Window):
    assert await tab.go("/runs/nobody") == 404
    assert "To the overview" in await tab.text()
    tab.wrong.clear()  # the browser names the status
