"""A real browser before a real server: both run beside the test, which steers them from its own event loop."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), "chromium")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Window:
    """One tab, and what went wrong in it."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)

    async def go(self, path: str) -> int:
        """Open a page of the server; gives back its status."""
        response = await self.page.goto(f"{self.url}{path}")
        assert response is not None
        return response.status

    async def text(self) -> str:
        """What stands in the middle of the page."""
        return await self.page.inner_text("main")

    async def sign_in(self, key: str) -> None:
        await self.go("/sign-in")
        await self.page.fill("#key", key)
        await self.page.press("#key", "Enter")
        await self.page.wait_for_url(f"{self.url}/")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", CHROMIUM), args=FLAGS, handle_sigint=False
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def window(browser: Browser, url: str, key: str = "", **options: Any) -> AsyncIterator[Window]:
    """A tab that nobody else's cookies are in, signed in with a key; what its console complains of is kept."""
    context: BrowserContext = await browser.new_context(**options)
    page = await context.new_page()
    opened = Window(page, url)
    page.on("console", lambda said: opened.wrong.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: opened.wrong.append(str(error)))
    try:
        if key:
            await opened.sign_in(key)
        yield opened
    finally:
        await context.close()
