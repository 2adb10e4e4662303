from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.truth.ledger import Ledger
from toolfleet.local.fleet import LocalFleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with LocalFleet(
        ["ledger_tools"], pools={"io": 1, "long": 1}, environment=here, lease_s=2, heartbeat_s=0.3
    ) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")
