"""The picture of a Prometheus whose alerts fire, of a real fleet: `python -m tests.page.alerts_picture`.

Takes four minutes, since rules of deploy/ wait for two before they fire. Prometheus and its page come from Debian's
packages, which are unpacked and not installed; a folder that has them already may be given.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.async_api import Page

from tests.http.serving import Served, serving
from tests.page.browsers import chromium
from tests.page.pictures import HERE, PICTURES
from tests.ports import free_port
from toolfleet.local.fleet import LocalFleet

ROOT = Path(__file__).parents[2]

PACKAGES = (
    "prometheus",
    "libjs-bootstrap4",
    "libjs-d3",
    "libjs-eonasdan-bootstrap-datetimepicker",
    "libjs-jquery",
    "libjs-jquery-hotkeys",
    "libjs-moment",
    "libjs-moment-timezone",
    "libjs-mustache",
    "libjs-popper.js",
    "libjs-rickshaw",
    "fonts-glyphicons-halflings",
)

CONFIG = """
global: {{ scrape_interval: 5s, evaluation_interval: 5s }}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: toolfleet
    static_configs: [{{ targets: {targets} }}]
"""

FIRING_WITHIN_S = 300

UNFOLD = "[...document.querySelectorAll('.alert_header')].find(row => row.innerText.includes('QueueUnserved')).click()"


async def main(packages: str = "") -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        debian = Path(packages or folder / "debian")
        if not packages:
            subprocess.run((str(ROOT / ".ci" / "debian"), str(debian), *PACKAGES), check=True)
        io, long, api = (free_port() for _ in range(3))
        with LocalFleet(["page_tools"], pools={}, environment=HERE) as fleet:
            fleet.start_worker("io", "--metrics-port", str(io))
            doomed = fleet.start_worker("long", "--metrics-port", str(long))
            fleet.wait_until_ready()
            with (
                serving(fleet.settings, folder, TOOLFLEET_METRICS_PORT=str(api)) as served,
                prometheus(debian, folder, (io, long, api)) as url,
            ):
                await asyncio.to_thread(_begin, served)
                await asyncio.sleep(8)
                doomed.kill()
                await _until_fired(url)
                await _shoot(url)


@contextmanager
def prometheus(debian: Path, folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """A Prometheus that scrapes these ports, by the rules that come with Toolfleet: its address."""
    own = f"127.0.0.1:{free_port()}"
    (folder / "prometheus.yml").write_text(CONFIG.format(targets=[f"127.0.0.1:{port}" for port in ports]))
    shutil.copy2(ROOT / "deploy" / "prometheus" / "alerts.yml", folder)
    words = {
        "config.file": "prometheus.yml",
        "storage.tsdb.path": folder / "prometheus",
        "web.listen-address": own,
        "web.local-assets": debian / "usr" / "share" / "prometheus" / "web",
        "web.console.templates": debian / "etc" / "prometheus" / "consoles",
        "web.console.libraries": debian / "etc" / "prometheus" / "console_libraries",
        "log.level": "error",
    }
    command = [str(debian / "usr" / "bin" / "prometheus"), *(f"--{name}={value}" for name, value in words.items())]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            yield f"http://{own}"
        finally:
            process.terminate()


def _begin(served: Served) -> None:
    """Have calls that go well, and so many slow ones that some wait for a worker."""
    slow = " ".join('call index_folder {"steps": 4000}' for _ in range(12))
    quick = " ".join('call fetch_page {"url": "https://example.org"}' for _ in range(30))
    for question in (f"{slow} then fetch", quick):
        httpx.post(f"{served.url}/v1/runs", json={"question": question}, headers=served.local_key).raise_for_status()


async def _until_fired(url: str) -> None:
    async with asyncio.timeout(FIRING_WITHIN_S), httpx.AsyncClient(base_url=url) as client:
        fired: set[str] = set()
        while not {"ToolfleetQueueUnserved", "ToolfleetProcessGone"} <= fired:
            await asyncio.sleep(2)
            alerts = (await client.get("/api/v1/alerts")).json()["data"]["alerts"]
            fired = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


async def _shoot(url: str) -> None:
    async with chromium() as browser:
        page: Page = await browser.new_page(viewport={"width": 1120, "height": 400})
        await page.goto(f"{url}/classic/alerts")
        await page.wait_for_load_state("networkidle")
        await page.click("text=Inactive")
        await page.click("text=Show annotations")
        await page.evaluate(UNFOLD)
        await asyncio.sleep(1)  # it unfolds slowly
        await page.screenshot(path=PICTURES / "alerts.png", full_page=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
