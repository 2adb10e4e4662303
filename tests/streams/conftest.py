"""A real server for each module of tests, and connections to it that leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from kombu import Connection

from tests.streams.harness import OPTIONS, Inbox, Server, temporary_server
from toolfleet.keys import Keys


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


@pytest.fixture
def client(server):
    server.client.flushall()
    return server.client


@pytest.fixture
def keys():
    return Keys()


@pytest.fixture
def connect(server, client):
    connections = []

    def connect(**options):
        connection = Connection(server.url, transport_options={**OPTIONS, **options})
        connections.append(connection)
        return connection

    yield connect
    for connection in connections:
        connection.release()


@pytest.fixture
def inbox(connect):
    """Makes consumers in this process; they end cleanly."""
    inboxes = []

    def inbox(*queues, prefetch=0, connection=None, no_ack=False, **options):
        inboxes.append(Inbox(connection or connect(**options), queues or ("io",), prefetch, no_ack=no_ack))
        return inboxes[-1]

    yield inbox
    for each in inboxes:
        each.consumer.cancel()


@pytest.fixture
def letters(client, keys):
    """Reads the dead letters."""

    def letters():
        return [
            {name.decode(): value for name, value in fields.items()} for _, fields in client.xrange(keys.dead_letters())
        ]

    return letters


@pytest.fixture
def add(client, keys):
    """Writes an entry past every check, as a stranger with the password could."""

    def add(queue="io", priority=3, **fields):
        raw = {name: value if isinstance(value, bytes | str) else orjson.dumps(value) for name, value in fields.items()}
        return client.xadd(keys.queue(queue, priority), raw).decode()

    return add
