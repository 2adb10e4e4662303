"""Every page in a real browser: it loads without a complaint, and can be used by keyboard, narrow, dark, scriptless."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window, window
from tests.page.furnished import furnished

pytestmark = pytest.mark.asyncio(loop_scope="module")

NARROW = {"width": 380, "height": 800}

SHOWN = {"/webhooks": "Given up", "/schedules": "its run", "/batches": "2 of 40 lines", "/jobs": "index_folder"}
"""What is on pages that would load without it, too."""

CUT = "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.getAttribute('aria-label'))"
"""The tables that have to be scrolled sideways."""

LEFT_EDGES = "links => links.map(link => link.getBoundingClientRect().left)"

ROOM_LEFT = """box => {
  const style = getComputedStyle(box), pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return room - pen.measureText(box.placeholder).width;
}"""
"""What is left of a box when its placeholder stands in it, in pixels."""

RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""What axe looks at: of a theme nothing but its colours is its own."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(served: Api) -> AsyncIterator[list[str]]:
    """Each page, with something on it."""
    async with furnished(served) as shown:
        yield shown


def told(found) -> list[str]:
    return [f"{each['id']}: {node['html'][:160]}" for each in found["violations"] for node in each["nodes"]]


@pytest.mark.parametrize("theme", RULES)
async def test_W15_every_page_loads_without_a_complaint_and_passes_axe(browser: Browser, served: Api, paths, theme):
    async with window(browser, served.url, served.local_key.made(), color_scheme=theme, viewport=NARROW) as tab:
        for path in paths:
            await tab.go(path)
            assert SHOWN.get(path, "") in await tab.text()
            assert not told((await Axe().run(tab.page, options=RULES[theme])).response), path
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


@pytest.mark.parametrize("width", [NARROW["width"], 1120])
async def test_W15_no_table_is_cut_at_the_edge_and_the_search_box_says_all_that_it_takes(
    browser: Browser, served: Api, paths, width
):
    async with window(browser, served.url, served.local_key.made(), viewport={"width": width, "height": 800}) as tab:
        for path in paths:
            await tab.go(path)
            assert await tab.page.locator(".scroll").evaluate_all(CUT) == [], path
            if path != "/sign-in":
                assert await tab.page.locator(".find input").evaluate(ROOM_LEFT) >= 0, path


async def test_the_pages_in_the_bar_stand_where_they_stood_when_another_one_is_open(tab: Window):
    places = []
    for path in ("/", "/dead-letters"):
        await tab.go(path)
        places.append(await tab.page.locator(".bar nav a").evaluate_all(LEFT_EDGES))
    assert places[0] == places[1]


async def test_what_is_not_there_is_a_page_with_a_way_back(tab: Window):
    assert await tab.go("/runs/nobody") == 404
    assert "To the overview" in await tab.text()
    tab.wrong.clear()  # the browser names the status
