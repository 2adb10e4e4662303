from __future__ import annotations

import pytest

from tests.http.fleet_of_doors import api_of


@pytest.fixture
async def api(settings):
    """An API of its own, with no workers but those that a test makes."""
    async with api_of(settings.model_copy(update={"heartbeat_s": 0.3})) as running:
        yield running
