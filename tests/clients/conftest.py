from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.served import Place, fleet_behind_http
from tests.clients.started import Started, started
from tests.truth.ledger import Ledger

CALLED_OFF_WITHIN_S = 90
"""The grace of a client that may come back is 30 s."""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fleet behind one API, for all clients."""
    with fleet_behind_http(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One client, for all tests of a module that are about it."""
    with started(request.param, tmp_path_factory.mktemp("client"), place.as_environment()) as running:
        yield running


@pytest.fixture(scope="module")
def called_off() -> Iterator[list[Ledger]]:
    """Ledgers whose hold is to be released by the end of the module: so one grace is waited for, not one for each."""
    ledgers: list[Ledger] = []
    yield ledgers
    give_up = time.monotonic() + CALLED_OFF_WITHIN_S
    while any(each.effects != {"held:a": 1, "released:a": 1} for each in ledgers):
        assert time.monotonic() < give_up, [each.effects for each in ledgers]
        time.sleep(0.05)
