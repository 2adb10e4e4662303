from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import RehearsalServer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    """A worker whose tool writes down who calls it, schedules that may tick each second, and leases that lapse soon."""
    with LocalFleet(
        ["noting_tools"],
        pools={"io": 1},
        environment={"PYTHONPATH": str(HERE)},
        lease_s=2,
        heartbeat_s=0.3,
        schedule_min_s=1,
        schedule_grace_s=3,
    ) as running:
        yield running


@pytest.fixture
async def model() -> AsyncIterator[RehearsalServer]:
    async with RehearsalServer() as server:
        yield server
