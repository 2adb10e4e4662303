from __future__ import annotations

import os
from pathlib import Path

import pytest
from fleets import HERE as FLEET
from stages import stage_of_its_own

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *FLEET.values()])}


@pytest.fixture(scope="session")
def fleet():
    with LocalFleet(["adapter_tools"], pools={"io": 1}, environment=HERE, lease_s=3, heartbeat_s=0.5) as running:
        yield running


@pytest.fixture
async def orchestrator(fleet):
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


@pytest.fixture
async def stage():
    async with stage_of_its_own() as its_own:
        yield its_own
