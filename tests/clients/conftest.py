from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.served import Place, fleet_behind_http
from tests.clients.started import Started, started
from tests.truth.ledger import Ledger


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fleet behind one API, for all clients."""
    with fleet_behind_http(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture(scope="module")
def client(
    request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """One client, for all tests of a module that are about it."""
    with started(request.param, tmp_path_factory.mktemp("client"), place.as_environment()) as running:
        yield running
