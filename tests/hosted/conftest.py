from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.hosted.hosted_api import ENVIRONMENT, KEY, HostedApi, Work
from tests.shared_by_directory import shared
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.hosted import Environment, Performer, RelayModel
from toolfleet.orchestrator.doors.hosted.wire import wire_of

HERE = Path(__file__).parent


def workers() -> LocalFleet:
    return LocalFleet(
        ["hosted_tools"], pools={"io": 1}, environment={"PYTHONPATH": str(HERE)}, lease_s=2, heartbeat_s=0.3
    )


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> LocalFleet:
    """A worker whose tools write down that they have run, and leases that lapse soon."""
    return shared(request, workers)


@pytest.fixture
async def api() -> AsyncIterator[HostedApi]:
    async with HostedApi().up() as served:
        yield served


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


class Served:
    """An environment that is served within the test's own process, and what it has told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stop = asyncio.Event()


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serving(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """Serves the environment of an `api` until its block ends."""

    @asynccontextmanager
    async def serving(api: HostedApi, *, tools: tuple[str, ...] = (), idle_s: float = 60) -> AsyncIterator[Served]:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "another-credential-obviously-fake")
        served, wire = Served(), wire_of(ENVIRONMENT, KEY)
        async with Orchestrator(RelayModel(), settings=fleet.settings) as orchestrator:
            performer = Performer(orchestrator, ENVIRONMENT, tools=tools, tenant="acme")
            environment = Environment(wire, performer, sessions=8, grace_s=0.2, idle_s=idle_s, tell=served.told.append)
            task = asyncio.create_task(environment.serve(served.stop))
            try:
                yield served
            finally:
                served.stop.set()
                await task
                await wire.aclose()

    return serving


class Process:
    """`toolfleet environment`, as people start it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def has_claimed(self, work: Work) -> bool:
        return work.holder.endswith(f"-{self._process.pid}")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def terminate(self) -> tuple[int | None, str]:
        """Tell it to stop, and return its exit status and what it has printed."""
        self._process.terminate()
        printed, _ = await self._process.communicate()
        return self._process.returncode, printed.decode()


Started = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def started(fleet: LocalFleet) -> Started:
    """Starts that command against an `api`; it is gone when its block ends."""

    @asynccontextmanager
    async def started(api: HostedApi, *words: str) -> AsyncIterator[Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "toolfleet.orchestrator.doors.cli",
            "environment",
            ENVIRONMENT,
            *words,
            env={
                **os.environ,
                **fleet.settings.as_environment(),
                "ANTHROPIC_BASE_URL": api.url,
                "ANTHROPIC_ENVIRONMENT_KEY": KEY,
            },
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Process(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return started
