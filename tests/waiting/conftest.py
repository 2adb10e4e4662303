"""A real server for each module of tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.room_transport import Transport
from tests.streams.harness import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # elsewhere a socket's path may be too long
        server = Server(Path(folder))
        yield server
        server.stop()


@pytest.fixture
def transport(server: Server) -> Transport:
    return Transport(server.client)


@pytest.fixture(scope="module")
def transport_of_a_module(server: Server) -> Transport:
    """For drawn examples, each of which empties the server and begins anew."""
    return Transport(server.client)
