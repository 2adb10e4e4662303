"""The pictures in docs/, taken by the tests' browser of a real fleet: `python -m tests.page.pictures`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.http.fleet_of_doors import Api, api_of
from tests.page.browsers import chromium, window
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
HERE = {"PYTHONPATH": str(Path(__file__).parent)}

READING = 'call fetch_page {{"url": "https://example.org/{n}", "seconds": {seconds}}}'
QUESTION = "Compare the prices on these pages, and pay the cheapest."


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with LocalFleet(["page_tools"], pools={"io": 1, "long": 1}, environment=HERE) as fleet:
        async with RehearsalServer() as server:
            model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
            async with api_of(fleet.settings, model) as api:
                await _take(api, await _begun(api))


async def _begun(api: Api) -> str:
    pages = " ".join(READING.format(n=n, seconds=round(0.3 + 0.4 * (n * 7 % 5), 1)) for n in range(9))
    failing = 'call break_down {"text": "the shop answered 503"}'
    run_id = await api.begin(f'{QUESTION} {pages} {failing} then call pay {{"amount": 120}}')
    for n in range(3):
        await api.begin(f'Index folder {n}. call index_folder {{"steps": 40}} then fetch')
    await asyncio.sleep(6)
    return run_id


async def _take(api: Api, run_id: str) -> None:
    views = {"overview": "/", "run": f"/runs/{run_id}", "approvals": "/approvals"}
    async with chromium() as browser:
        for theme, size in (("light", (1120, 720)), ("dark", (380, 720))):
            viewport = {"width": size[0], "height": size[1]}
            async with window(browser, api.url, api.local_key.made(), viewport=viewport, color_scheme=theme) as tab:
                for name, path in views.items():
                    await tab.go(path)
                    await asyncio.sleep(3)
                    suffix = "" if theme == "light" else "-narrow"
                    await tab.page.screenshot(path=PICTURES / f"{name}{suffix}.png")


if __name__ == "__main__":
    asyncio.run(main())
