from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.fleet_of_doors import api_of
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer

FLEET_TOOLS = Path(__file__).parents[1] / "fleet"
HERE = {"PYTHONPATH": f"{FLEET_TOOLS}:{Path(__file__).parent}"}


@pytest.fixture(scope="session")
def http_fleet() -> Iterator[LocalFleet]:
    """Workers for all tests of the doors."""
    with LocalFleet(["fleet_tools", "door_tools"], pools={"io": 1}, environment=HERE) as running:
        yield running


@pytest.fixture
async def model():
    async with RehearsalServer() as server:
        yield OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")


@pytest.fixture
async def api(http_fleet: LocalFleet, model):
    async with api_of(http_fleet.settings, model) as running:
        yield running
