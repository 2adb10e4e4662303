from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from fleets import HERE as FLEET
from mcp import Client
from stages import stage_of_its_own

from tests.mcp.doors import TasksExtension, piped, served
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import mcp_app

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *FLEET.values()])}


@pytest.fixture(scope="session")
def fleet():
    with LocalFleet(
        ["mcp_tools"], pools={"io": 1, "long": 1}, environment=HERE, lease_s=3, heartbeat_s=0.5, mcp_wait_s=1
    ) as running:
        yield running


@pytest.fixture
async def orchestrator(fleet):
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


@pytest.fixture
async def address(orchestrator):
    async with served(mcp_app(orchestrator)) as where:
        yield where


@pytest.fixture
async def stage():
    async with stage_of_its_own() as its_own:
        yield its_own


@pytest.fixture(params=["auto", "legacy"])
def connect(request, address):
    """Makes clients without extensions, over HTTP, of each era."""
    return functools.partial(Client, address, mode=request.param)


@pytest.fixture(params=["http", "http of before", "stdio"])
def connect_anyhow(request, fleet, address):
    """Makes clients without extensions, by each transport and era."""
    mode = "legacy" if "before" in request.param else "auto"
    server = piped(fleet) if request.param.startswith("stdio") else address
    return functools.partial(Client, server, mode=mode)


@pytest.fixture(params=["http", "stdio"])
def connect_tasking(request, fleet, address):
    """Makes clients that know tasks, by each transport."""
    server = piped(fleet) if request.param == "stdio" else address
    return functools.partial(Client, server, extensions=[TasksExtension()])
