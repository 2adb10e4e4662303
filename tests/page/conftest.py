from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, StorageState

from tests.http.fleet_of_doors import Api, rehearsed_api
from tests.page.browsers import Window, chromium, window
from tests.shared_by_directory import shared
from toolfleet.local.fleet import LocalFleet

HERE = {"PYTHONPATH": str(Path(__file__).parent)}


def workers() -> LocalFleet:
    return LocalFleet(["page_tools"], pools={"io": 1, "long": 1}, environment=HERE)


@pytest.fixture(scope="module")
def page_fleet(request: pytest.FixtureRequest) -> LocalFleet:
    """Workers for all tests of the page."""
    return shared(request, workers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(page_fleet: LocalFleet) -> AsyncIterator[Api]:
    async with rehearsed_api(page_fleet.settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(browser: Browser, served: Api) -> StorageState:
    """The cookies of whoever has this machine's user, who has typed the key once for all tests."""
    async with window(browser, served.url, served.local_key.made()) as opened:
        return await opened.page.context.storage_state()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, served: Api, signed_in: StorageState) -> AsyncIterator[Window]:
    """A tab of whoever has this machine's user; a test that uses it leaves nothing wrong in its console."""
    async with window(browser, served.url, storage_state=signed_in) as opened:
        yield opened
        assert not opened.wrong
