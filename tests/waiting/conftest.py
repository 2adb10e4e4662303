"""A real server for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.room_transport import Transport
from tests.streams.harness import Server, temporary_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


@pytest.fixture
def transport(server: Server) -> Transport:
    return Transport(server.client)


@pytest.fixture(scope="module")
def transport_of_a_module(server: Server) -> Transport:
    """For drawn examples, each of which empties the server and begins anew."""
    return Transport(server.client)
