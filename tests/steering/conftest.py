from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stages import Stage, stage_of_its_own

from tests.http.fleet_of_doors import Api, api_of
from tests.shared_by_directory import shared
from tests.steering.replayed import different_again
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer

TOOLS = Path(__file__).parents[1] / "fleet"
HERE = {"PYTHONPATH": f"{TOOLS}:{Path(__file__).parent}"}


@contextmanager
def workers() -> Iterator[LocalFleet]:
    with LocalFleet(["steered_tools"], pools={"io": 1}, environment=HERE, lease_s=2, heartbeat_s=0.3) as running:
        yield running
        # Whatever the tests have had them do: the same comes out of each of them.
        assert asyncio.run(different_again(running.settings)) == {}


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> LocalFleet:
    return shared(request, workers)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_of_its_own() as its_own:
        yield its_own


@pytest.fixture
async def rehearsal() -> AsyncIterator[RehearsalServer]:
    async with RehearsalServer() as server:
        yield server


@pytest.fixture
def model(rehearsal: RehearsalServer) -> OpenAIChat:
    return OpenAIChat(REHEARSAL_MODEL, base_url=rehearsal.base_url, api_key="rehearsal")


@pytest.fixture
async def api(fleet: LocalFleet, model: OpenAIChat) -> AsyncIterator[Api]:
    async with api_of(fleet.settings, model) as running:
        yield running


@pytest.fixture
async def observer(fleet: LocalFleet) -> AsyncIterator[Orchestrator]:
    """An orchestrator without a model: it looks, and writes from outside."""
    async with Orchestrator(settings=fleet.settings) as running:
        yield running
