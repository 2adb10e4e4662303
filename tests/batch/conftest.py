from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.batch.desk import Desk
from tests.cli.command import Terminal
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import REHEARSAL_MODEL, RehearsalServer


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    """Workers that survive the command, with leases that lapse soon once it was killed."""
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}, lease_s=2, heartbeat_s=0.5) as running:
        yield running


@pytest.fixture
async def desk(fleet: LocalFleet, tmp_path: Path) -> AsyncIterator[Desk]:
    """A folder with the command in it, and a model that remembers every question."""
    async with RehearsalServer() as server:
        model = {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "rehearsal",
            "OPENAI_MODEL": REHEARSAL_MODEL,
        }
        yield Desk(Terminal(tmp_path, {**fleet.settings.as_environment(), **model}), server, fleet.settings)
