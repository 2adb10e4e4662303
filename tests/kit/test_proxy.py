"""The proxy of toolfleet.testing, in front of a real server."""

import asyncio

import pytest
import redis
import redis.asyncio

from toolfleet.testing import FaultyServer, Proxy


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture
def proxy(server):
    with Proxy(server.port_url) as running:
        yield running


@pytest.fixture
def client(proxy):
    with redis.Redis.from_url(proxy.url) as connected:
        yield connected


def test_what_goes_through_arrives_both_ways(client):
    client.set("key", b"x" * 1_000_000)
    assert client.get("key") == b"x" * 1_000_000


def test_a_cut_resets_what_is_open_and_lets_in_what_comes_next(proxy, client):
    assert client.ping()
    assert proxy.cut() == 1
    with redis.Redis.from_url(proxy.url) as another:
        assert another.ping()


def test_nobody_gets_in_until_admitted_at_the_same_address(proxy):
    url = proxy.url
    proxy.refuse()
    with redis.Redis.from_url(url, retry=None) as client:
        with pytest.raises(redis.ConnectionError):
            client.ping()
        proxy.admit()
        assert client.ping()


async def test_what_is_held_up_arrives_when_it_is_released(proxy):
    async with redis.asyncio.Redis.from_url(proxy.url) as client:
        await client.ping()
        proxy.hold()
        answering = asyncio.create_task(client.ping())
        done, _ = await asyncio.wait([answering], timeout=0.2)
        assert not done
        proxy.release()
        assert await answering


def test_a_restarted_server_has_its_data_and_its_address(server, proxy):
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
    server.restart()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"


def test_a_server_out_of_memory_refuses_writes_until_it_is_relieved(server):
    with redis.Redis.from_url(server.url) as client:
        with server.out_of_memory(), pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("more", "x")
        assert client.set("more", "x")
