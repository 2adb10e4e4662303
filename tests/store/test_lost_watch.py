"""What is stored together with something else, on a connection that is lost while it watches."""

from __future__ import annotations

import pytest
import redis

from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal


async def test_a_connection_that_is_lost_while_a_run_is_watched_is_as_if_others_had_written(settings):
    async with connect_async(settings) as client, connect_async(settings) as other:
        store = RunStore(client, settings, Seal(settings))
        stored = await store.begin(machine.STARTED, owner="a")
        raised = []

        async def look_in_vain(pipeline):
            await other.client_kill_filter(_id=await pipeline.execute_command("CLIENT", "ID"))
            try:
                await pipeline.get("anything")
            except redis.RedisError as error:
                raised.append(error)
                raise
            pytest.fail("the connection was not lost")

        replied = machine.reply(0, 0)
        write = {"follows": stored.link, "watching": "beside"}
        assert await store.append_with(stored.run.on(replied), replied, besides=look_in_vain, **write) is None
        assert [type(each) for each in raised] == [redis.WatchError]

        async def nothing(pipeline):
            pipeline.multi()
            return True

        assert await store.append_with(stored.run.on(replied), replied, besides=nothing, **write)
