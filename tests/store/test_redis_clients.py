"""What commands to Redis raise, against real servers in each state; and batches, which wait for them."""

import asyncio
from importlib.metadata import version

import pytest
import redis

from toolfleet.batcher import Batcher
from toolfleet.broker import celery_app
from toolfleet.connections import connect, connect_async
from toolfleet.errors import StoreRefuses, StoreUnreachable
from toolfleet.settings import read_settings
from toolfleet.testing import FaultyServer

PASSWORD = "not-for-logs"


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture
async def client(server):
    async with connect_async(read_settings(redis_url=server.url)) as connected:
        yield connected


async def test_connections_are_known_by_one_name_that_is_made_once(server):
    with (
        connect(read_settings(redis_url=server.url)) as blocking,
        celery_app(read_settings(redis_url=server.url)).connection() as broker,
    ):
        async with connect_async(read_settings(redis_url=server.url)) as client:
            channel = broker.default_channel
            told = [blocking.client_info(), await client.client_info(), channel.commands.client_info()]
            pools = [blocking.connection_pool, client.connection_pool, channel.pool]
            drivers = {id(pool.make_connection().driver_info) for pool in pools for _ in range(2)}
    name = f"redis-py(toolfleet_v{version('toolfleet')})"
    assert [(each["lib-name"], each["lib-ver"]) for each in told] == [(name, version("redis"))] * 3
    assert len(drivers) == 1


async def commands_of(client):
    """A lone command, a pipeline, a transaction, a script, a scan and streams: each as a coroutine function."""

    async def piped(*, transaction):
        pipeline = client.pipeline(transaction=transaction)
        pipeline.set("secret-key", "secret-value")
        pipeline.get("x")
        await pipeline.execute()

    async def scanned():
        return [key async for key in client.scan_iter()]

    script = client.register_script("return redis.call('SET', KEYS[1], 'x')")
    return {
        "command": lambda: client.set("x", "y"),
        "pipeline": lambda: piped(transaction=False),
        "transaction": lambda: piped(transaction=True),
        "script": lambda: script(keys=["x"]),
        "scan": scanned,
        "streams": lambda: client.read_streams({"x": "0"}, count=1),
    }


@pytest.mark.parametrize("way", ["command", "pipeline", "transaction", "script", "scan", "streams"])
async def test_every_way_to_a_server_that_is_away_says_where_and_what_to_do_without_the_password(way):
    nobody = read_settings(redis_url=f"redis://:{PASSWORD}@127.0.0.1:1/0")
    async with connect_async(nobody) as client:
        command = (await commands_of(client))[way]
        with pytest.raises(StoreUnreachable, match=r"Redis at redis://127\.0\.0\.1:1/0 does not answer") as raised:
            await command()
    assert PASSWORD not in str(raised.value)
    assert "start it, or set TOOLFLEET_REDIS_URL" in str(raised.value)


@pytest.mark.parametrize("way", ["command", "pipeline", "transaction", "script"])
async def test_writes_that_are_refused_for_want_of_memory_are_refusals_of_the_store(server, client, way):
    command = (await commands_of(client))[way]
    await command()
    with server.out_of_memory(), pytest.raises(StoreRefuses, match=r"refuses writes.*maxmemory") as raised:
        await command()
    assert "secret" not in str(raised.value)
    await command()


async def test_a_client_with_a_connection_of_its_own_says_the_same():
    async with connect_async(read_settings(redis_url="redis://127.0.0.1:1/0")) as client:
        with pytest.raises(StoreUnreachable, match="does not answer"):
            await client.client().get("x")


def test_blocking_clients_say_the_same(server):
    with connect(read_settings(redis_url="redis://127.0.0.1:1/0")) as client:
        with pytest.raises(StoreUnreachable, match="does not answer"):
            client.get("x")
        with pytest.raises(StoreUnreachable, match="does not answer"):
            client.pipeline().get("x").execute()
    refused = pytest.raises(StoreRefuses, match="refuses writes")
    with connect(read_settings(redis_url=server.url)) as client, server.out_of_memory(), refused:
        client.set("x", "y")


async def test_a_wrong_command_is_no_trouble_of_the_store(client):
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await client.execute_command("NO-SUCH-COMMAND")


async def test_a_key_that_holds_something_else_is_said_to_whoever_looks_after_the_server(client):
    await client.set("text", "x")
    with pytest.raises(StoreRefuses, match=r"holds something else.*a database of its own"):
        await client.lpush("text", "y")


async def test_a_script_that_the_server_has_forgotten_is_loaded_again(client):
    script = client.register_script("return 'said'")
    assert await script() == b"said"
    await client.script_flush()
    assert await script() == b"said"


async def test_what_comes_while_a_batch_is_on_its_way_goes_together_in_the_next_ones():
    batches, go_on = [], asyncio.Event()

    async def send(numbers):
        batches.append(list(numbers))
        await go_on.wait()
        return [number * 10 for number in numbers]

    batcher = Batcher(send, max_batch=2)
    first = batcher.add(1)
    await asyncio.sleep(0)
    later = [batcher.add(2), batcher.add_all([3, 4])]
    go_on.set()
    assert await asyncio.gather(first, *later) == [10, 20, 40]
    assert batches == [[1], [2, 3], [4]]


async def test_what_could_not_be_sent_is_told_to_whoever_waits():
    async def send(numbers):
        raise LookupError(f"{numbers[0]} is a bug")

    with pytest.raises(LookupError, match="1 is a bug"):
        await Batcher(send, max_batch=2).add(1)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_streams_are_read_as_they_stand_in_either_protocol(redis_server, protocol):
    first, second, nothing, key = (f"streams-{protocol}-{name}" for name in ("first", "second", "nothing", "key"))
    settings = read_settings(redis_url=redis_server.url)
    async with connect_async(settings) as client, client.client() as reader:
        client.connection_pool.connection_kwargs["protocol"] = protocol
        assert await reader.read_streams({first: "0"}, count=5) == []
        ids = [await client.xadd(first, {"a": str(number), b"\xff": b"\r\n"}) for number in range(3)]
        other = await client.xadd(second, {"b": ""})
        assert (await reader.client_info())["resp"] == str(protocol)
        found = await reader.read_streams({first: ids[0], nothing: "0", second: "0"}, count=1)
        assert found == [
            (first.encode(), [(ids[1], {b"a": b"1", b"\xff": b"\r\n"})]),
            (second.encode(), [(other, {b"b": b""})]),
        ]
        waiting = asyncio.create_task(reader.read_streams({first: ids[2]}, count=5, block_ms=60_000))
        await asyncio.sleep(0.05)
        last = await client.xadd(first, {"a": "last"})
        assert await waiting == [(first.encode(), [(last, {b"a": b"last"})])]
        assert await reader.read_streams({first: last}, count=5, block_ms=1) == []
        await client.set(key, "no stream")
        with pytest.raises(StoreRefuses, match="WRONGTYPE"):
            await reader.read_streams({key: "0"}, count=1)
        await client.delete(first, second, key)
