from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stages import Stage, stage_of_its_own

from tests.http.a2a_agents import Agent
from tests.http.fleet_of_doors import api_of
from tests.shared_by_directory import shared
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer

FLEET_TOOLS = Path(__file__).parents[1] / "fleet"
HERE = {"PYTHONPATH": f"{FLEET_TOOLS}:{Path(__file__).parent}"}


def workers() -> LocalFleet:
    return LocalFleet(["fleet_tools", "door_tools"], pools={"io": 1}, environment=HERE)


@pytest.fixture(scope="module")
def http_fleet(request: pytest.FixtureRequest) -> LocalFleet:
    """Workers for all tests of the doors."""
    return shared(request, workers)


@pytest.fixture
async def model():
    async with RehearsalServer() as server:
        yield OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")


@pytest.fixture
async def api(http_fleet: LocalFleet, model):
    async with api_of(http_fleet.settings, model) as running:
        yield running


@pytest.fixture
async def agent(api):
    """The agent as an A2A client sees it whose tenant is this test's own, and which may do all that a client can."""
    async with Agent.of_tenant(api, f"tenant-{secrets.token_hex(4)}", Scope.RUN, Scope.APPROVE) as ours:
        yield ours


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_of_its_own() as its:
        yield its
