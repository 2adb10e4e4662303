"""Slow calls: told while they run, cancelled with their client, and carried on for one that cannot wait."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.doors import served, text
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app

WAIT_S = 30


async def test_progress_of_a_running_call_is_told(connect, stage):
    heard = asyncio.Queue()

    async def hear(*progress):
        heard.put_nowait(progress)

    async with connect() as client:
        calling = asyncio.create_task(client.call_tool("play", {"stage": stage.path}, progress_callback=hear))
        actor = await stage.enters()
        actor.progresses(0.25, "a quarter")
        assert await asyncio.wait_for(heard.get(), WAIT_S) == (0.25, 1.0, "a quarter")
        actor.progresses(0.5, "half")
        assert await asyncio.wait_for(heard.get(), WAIT_S) == (0.5, 1.0, "half")
        actor.returns("done")
        assert text(await calling) == "done"


async def test_a_client_that_stops_waiting_cancels_the_call_on_its_worker(connect_anyhow, stage):
    async with connect_anyhow() as client:
        calling = asyncio.create_task(client.call_tool("play", {"stage": stage.path}))
        actor = await stage.enters()
        calling.cancel()
        assert await actor.leaves() == "cancelled"
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


async def test_a_client_that_knows_no_tasks_gets_the_result_of_a_long_call_it_can_wait_for(connect, stage):
    async with connect() as client:
        calling = asyncio.create_task(client.call_tool("play_long", {"stage": stage.path}))
        (await stage.enters()).returns({"done": 1})
        assert (await calling).structured_content == {"done": 1}


async def test_a_client_that_can_wait_no_longer_gets_an_id_and_asks_with_it(connect, stage):
    async with connect() as client:
        await client.list_tools()
        first = await client.call_tool("play_long", {"stage": stage.path})
        actor = await stage.enters()
        assert (first.is_error, "do not call it again" in text(first)) == (False, True)
        task = {"task_id": first.structured_content["task_id"]}
        actor.progresses(0.5, "half")
        unfinished = await client.call_tool("task_result", {**task, "block": False})
        assert json.loads(text(unfinished))["status"] == "running"
        actor.returns({"done": 2})
        finished = await client.call_tool("task_result", task)
        assert (finished.is_error, finished.structured_content) == (False, {"done": 2})
    assert len(stage.actors) == 1


async def test_a_client_that_knows_no_tasks_cancels_with_a_tool(address, stage):
    async with Client(address) as client:
        first = await client.call_tool("play_long", {"stage": stage.path})
        actor = await stage.enters()
        task = {"task_id": first.structured_content["task_id"]}
        ended = await client.call_tool("task_cancel", task)
        assert json.loads(text(ended))["status"] == "cancelled"
        assert await actor.leaves() == ""  # its process was killed
        assert (await client.call_tool("task_result", task)).is_error
        unknown = await client.call_tool("task_result", {"task_id": "made-up"})
        assert (unknown.is_error, "no such task" in text(unknown)) == (True, True)


async def test_tasks_and_tools_belong_to_their_caller(fleet, stage):
    def caller_of(request):
        name = request.headers["x-user"]
        return Caller(tenant=name, may_call=lambda tool: name == "ann" or tool == "echo", context={"user": name})

    @asynccontextmanager
    async def user(name):
        async with (
            httpx2.AsyncClient(headers={"x-user": name}) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            yield client

    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=caller_of)) as address,
        user("ann") as ann,
        user("bob") as bob,
    ):
        assert (await ann.call_tool("who_asks", {})).structured_content == {"user": "ann"}
        bobs = {tool.name for tool in (await bob.list_tools()).tools}
        assert bobs == {"echo", "task_result", "task_cancel", "read_result"}
        with pytest.raises(Exception, match="Unknown tool"):
            await bob.call_tool("who_asks", {})
        slow = await ann.call_tool("play_long", {"stage": stage.path})
        (await stage.enters()).returns({"done": 3})
        task = {"task_id": slow.structured_content["task_id"]}
        assert "no such task" in text(await bob.call_tool("task_result", task))
        assert (await ann.call_tool("task_result", task)).structured_content == {"done": 3}
