from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.served import Place, fleet_behind_http
from tests.clients.started import Started, started
from tests.truth.ledger import Ledger

CALLED_OFF_WITHIN_S = 90
"""The grace of a client that may come back is 30 s."""

CALLED_OFF = {"held:a": 1, "released:a": 1}
"""What a ledger has of a call that was held, and let go."""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fleet behind one API, for all clients."""
    with fleet_behind_http(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture(scope="session")
def until_the_end(place: Place) -> Iterator[ExitStack]:
    """Clients live to the end of all tests: what one has broken off is not called off because it is gone."""
    with ExitStack() as clients:
        yield clients


@pytest.fixture(scope="module")
def client(
    request: pytest.FixtureRequest, place: Place, until_the_end: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> Started:
    """One client, for all tests of a module that are about it."""
    return until_the_end.enter_context(
        started(request.param, tmp_path_factory.mktemp("client"), place.as_environment())
    )


@pytest.fixture(scope="session")
def called_off(until_the_end: ExitStack) -> Iterator[list[Ledger]]:
    """Ledgers whose hold is to be released by the end of all tests: others run meanwhile, so that nobody waits."""
    ledgers: list[Ledger] = []
    yield ledgers
    give_up = time.monotonic() + CALLED_OFF_WITHIN_S
    while held := {str(each.path): each.effects for each in ledgers if each.effects != CALLED_OFF}:
        assert time.monotonic() < give_up, held
        time.sleep(0.05)
