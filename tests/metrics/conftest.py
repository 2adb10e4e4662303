"""A fleet whose every process can be scraped: two workers, an orchestrator, the API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Terminal, interrupted, read_until
from tests.http.serving import Served, serving
from tests.metrics.scraping import Scrape, parsed, scrape
from tests.ports import free_port
from toolfleet.local.fleet import LocalFleet
from toolfleet.settings import Settings

HERE = {"PYTHONPATH": str(Path(__file__).parent)}


@dataclass(frozen=True)
class Scraped:
    """Processes of one fleet, and where each is scraped."""

    settings: Settings
    io: int
    cpu: int
    orchestrator: int
    api: int
    served: Served

    def of_api(self) -> Scrape:
        told = httpx.get(f"{self.served.url}/metrics", headers=self.served.local_key, timeout=30)
        return parsed(told.raise_for_status().text)

    def all(self) -> list[Scrape]:
        return [scrape(self.io), scrape(self.cpu), scrape(self.orchestrator), self.of_api()]

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(f"{self.served.url}{path}", json=body, headers=self.served.local_key, timeout=60)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    io, cpu, orchestrator, api = (free_port() for _ in range(4))
    fleet = LocalFleet(["measured_tools"], pools={}, environment=HERE)
    with fleet as running:
        running.start_worker("io", "--metrics-port", str(io))
        running.start_worker("cpu", "--concurrency", "2", environment={"TOOLFLEET_METRICS_PORT": str(cpu)})
        running.wait_until_ready()
        variables = running.settings.as_environment()
        terminal = Terminal(tmp_path_factory.mktemp("orchestrator"), variables)
        words = ("orchestrator", "--model", "rehearsal", "--metrics-port", str(orchestrator))
        with terminal.start(*words) as process:
            read_until(process, "Ready")
            with serving(running.settings, tmp_path_factory.mktemp("serve"), TOOLFLEET_METRICS_PORT=str(api)) as served:
                yield Scraped(running.settings, io, cpu, orchestrator, api, served)
            interrupted(process)
        terminal.until_nothing_is_left()
