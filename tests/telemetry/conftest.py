"""Real workers and real orchestrators, each with OpenTelemetry's SDK, and a real collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from post import Post

from tests.telemetry.otlp_collector import Collector, collecting
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import RehearsalServer

HERE = Path(__file__).parent


class Asker:
    """An orchestrator in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, do: str, **ask: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **ask}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, do: str, **ask: Any) -> Any:
        self.send(do, **ask)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def orchestrator_of(fleet: LocalFleet, base_url: str, **environment: str) -> Iterator[Asker]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "traced_orchestrator.py"), base_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **fleet.settings.as_environment(), **environment},
    )
    with process:
        try:
            asker = Asker(process)
            assert asker.hear() == "ready"
            yield asker
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()


@contextmanager
def fleet_of(
    collector: Collector, pools: dict[str, int], *, environment: Any = None, modules: Any = None, **settings: Any
) -> Iterator[Any]:
    with LocalFleet(
        modules or ["traced_tools"],
        pools=pools,
        environment={
            "PYTHONPATH": str(HERE),
            "OTEL_SERVICE_NAME": "worker",
            **collector.environment,
            **(environment or {}),
        },
        **settings,
    ) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(collector: Collector) -> Iterator[LocalFleet]:
    with fleet_of(collector, {"io": 1, "long": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


@pytest.fixture
async def model() -> AsyncIterator[RehearsalServer]:
    async with RehearsalServer() as server:
        yield server


@pytest.fixture
async def post(fleet: LocalFleet) -> AsyncIterator[Post]:
    post = Post(fleet.settings)
    yield post
    await post.aclose()


@pytest.fixture
def traced(fleet: LocalFleet, collector: Collector, model: RehearsalServer) -> Any:
    """Start an orchestrator that exports to the collector."""

    def started(**environment: str) -> Any:
        base = {"OTEL_SERVICE_NAME": "orchestrator", **collector.environment}
        return orchestrator_of(fleet, model.base_url, **base | environment)

    return started
