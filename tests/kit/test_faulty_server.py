"""A server that forgets what it had acknowledged, and one that refuses writes."""

import pytest
import redis

from toolfleet.testing import FaultyServer


@pytest.fixture
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server.url) as connected:
        yield connected


@pytest.mark.parametrize("as_dump", [False, True])
def test_a_server_that_is_rolled_back_has_what_it_had_then_and_nothing_since(server, client, as_dump):
    client.set("before", "kept")
    kept = server.keep(as_dump=as_dump)
    client.set("after", "forgotten")
    client.delete("before")
    server.roll_back(kept)
    assert client.keys() == [b"before"]
    # What it takes from now on is as safe as ever.
    client.set("since", "kept")
    server.restart()
    assert set(client.keys()) == {b"before", b"since"}


def test_what_was_kept_can_be_gone_back_to_twice(server, client):
    kept = server.keep()
    for _ in range(2):
        client.set("after", "forgotten")
        server.roll_back(kept)
        assert not client.keys()


def test_a_read_only_server_answers_and_refuses_writes_until_it_is_none_any_more(server, client):
    client.set("before", "kept")
    with server.as_replica():
        assert client.get("before") == b"kept"
        with pytest.raises(redis.ReadOnlyError):
            client.set("before", "lost")
    client.set("before", "changed")
    assert client.get("before") == b"changed"
