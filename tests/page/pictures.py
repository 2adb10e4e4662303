"""The pictures in docs/, taken by the tests' browser of a real fleet: `python -m tests.page.pictures`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.http.fleet_of_doors import Api, rehearsed_api
from tests.page.browsers import chromium, window
from toolfleet.local.fleet import LocalFleet

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
HERE = {"PYTHONPATH": str(Path(__file__).parent)}

READING = 'call fetch_page {{"url": "https://example.org/{n}", "seconds": {seconds}}}'
QUESTION = "Compare the prices on these pages, and pay the cheapest."


VIEWPORTS = {"": ("light", 1120, 720), "-narrow": ("dark", 380, 720)}


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    trace.set_tracer_provider(TracerProvider())  # calls are in a trace, which is exported nowhere
    await _of_a_fleet_at_work()
    await _of_a_call()


async def _of_a_fleet_at_work() -> None:
    with LocalFleet(["page_tools"], pools={"io": 1, "long": 1}, environment=HERE) as fleet:
        async with rehearsed_api(fleet.settings) as api:
            await _take(api, await _begun(api))


async def _begun(api: Api) -> str:
    pages = " ".join(READING.format(n=n, seconds=round(0.3 + 0.4 * (n * 7 % 5), 1)) for n in range(9))
    failing = 'call break_down {"text": "the shop answered 503"}'
    run_id = await api.begin(f'{QUESTION} {pages} {failing} then call pay {{"amount": 120}}')
    for n in range(3):
        await api.begin(f'Index folder {n}. call index_folder {{"steps": 40}} then fetch')
    await asyncio.sleep(6)
    return run_id


async def _of_a_call() -> None:
    """A call whose first worker was killed, and what both attempts have logged."""
    pools = {"io": 2}
    with LocalFleet(["picture_tools"], pools=pools, environment=HERE, lease_s=3.0, heartbeat_s=0.5) as fleet:
        async with rehearsed_api(fleet.settings) as api:
            run_id = await api.begin('call import_orders {"file": "orders-2026-01.csv"}')
            await api.ended(run_id)
            await _shoot(api, {"call": f"/calls/{run_id}.1.0"}, full_page=True)


async def _take(api: Api, run_id: str) -> None:
    await _shoot(api, {"overview": "/", "run": f"/runs/{run_id}", "approvals": "/approvals"})


async def _shoot(api: Api, views: Mapping[str, str], *, full_page: bool = False) -> None:
    async with chromium() as browser:
        for suffix, (theme, width, height) in VIEWPORTS.items():
            viewport = {"width": width, "height": height}
            async with window(browser, api.url, api.local_key.made(), viewport=viewport, color_scheme=theme) as tab:
                for name, path in views.items():
                    await tab.go(path)
                    await asyncio.sleep(3)
                    await tab.page.screenshot(path=PICTURES / f"{name}{suffix}.png", full_page=full_page)


if __name__ == "__main__":
    asyncio.run(main())
