from __future__ import annotations

import pytest

from toolfleet.local.fleet import LocalFleet


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}, lease_s=3, heartbeat_s=0.5) as running:
        yield running
