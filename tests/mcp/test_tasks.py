"""The Tasks extension of revision 2026-07-28 as a client sees it, on real workers."""

import asyncio
from datetime import datetime

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from tests.mcp.doors import (
    EXTENSION,
    CancelTask,
    CreatedTask,
    OldResultOfTask,
    TaskParams,
    TasksExtension,
    ToldTask,
    UnnamedGetTask,
    UpdateParams,
    UpdateTask,
    served,
    text,
    told_task,
    until,
    until_task_is,
)
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import mcp_app


@pytest.fixture
def client(address):
    return Client(address, extensions=[TasksExtension()])


async def begun(client, stage, tool="play_long"):
    """A call that became a task, and its actor."""
    created = await client.session.call_tool(tool, {"stage": stage.path}, allow_claimed=True)
    assert isinstance(created, CreatedTask)
    return created, await stage.enters()


async def test_a_long_call_becomes_a_task_that_is_asked_for_its_result(connect_tasking, stage):
    async with connect_tasking() as client:
        assert client.server_capabilities.extensions == {EXTENSION: {}}
        created, actor = await begun(client, stage)
        assert (created.status, created.ttl_ms > 0, created.poll_interval_ms) == ("working", True, 5000)
        working = await told_task(client, created.task_id)
        assert (working.status, working.result, working.created_at) == ("working", None, created.created_at)
        assert datetime.fromisoformat(working.created_at) <= datetime.fromisoformat(working.last_updated_at)
        actor.returns({"done": 1})
        completed = await until_task_is(client, created.task_id, "completed")
        assert completed.result.structured_content == {"done": 1}
    assert len(stage.actors) == 1


async def test_a_task_tells_how_far_its_call_has_come(client, stage):
    async with client:
        created, actor = await begun(client, stage)
        actor.progresses(0.5, "half")
        await until(client, created.task_id, lambda told: told.status_message == "50% half")
        actor.returns({})


async def test_patience_decides_for_each_call_whether_it_becomes_a_task(client, stage):
    async with client:
        quick = await client.call_tool("add", {"a": 1, "b": 2})
        assert text(quick) == "3"
        created, actor = await begun(client, stage, "play_impatiently")
        actor.returns("slowly")
        assert text((await until_task_is(client, created.task_id, "completed")).result) == "slowly"


async def test_the_client_of_an_extension_need_not_know_that_there_was_a_task(client, stage):
    async with client:
        await client.list_tools()
        calling = asyncio.create_task(client.call_tool("play_long", {"stage": stage.path}))
        (await stage.enters()).returns({"done": 4})
        assert (await calling).structured_content == {"done": 4}


async def test_a_failing_task_is_completed_with_an_error_for_its_model(client, stage):
    async with client:
        created, actor = await begun(client, stage)
        actor.close()
        completed = await until_task_is(client, created.task_id, "completed")
    assert completed.result.is_error


async def test_a_cancelled_task_ends_on_its_worker_and_stays_cancelled(client, stage):
    async with client:
        created, actor = await begun(client, stage)
        params = TaskParams(task_id=created.task_id)
        assert (await client.session.send_request(CancelTask(params=params), ToldAnything)).result_type == "complete"
        assert await actor.leaves() == ""  # its process was killed
        cancelled = await until_task_is(client, created.task_id, "cancelled")
        assert cancelled.result is None
        await client.session.send_request(CancelTask(params=params), ToldAnything)
        update = UpdateTask(params=UpdateParams(task_id=created.task_id, input_responses={"nothing": 1}))
        await client.session.send_request(update, ToldAnything)
        assert (await told_task(client, created.task_id)).status == "cancelled"


async def test_a_task_outlives_the_server_that_gave_it_out(fleet, client, stage):
    async with client:
        created, actor = await begun(client, stage)
    async with (
        Orchestrator(settings=fleet.settings) as another,
        served(mcp_app(another)) as address,
        Client(address, extensions=[TasksExtension()]) as later,
    ):
        actor.returns({"done": 5})
        completed = await until_task_is(later, created.task_id, "completed")
    assert completed.result.structured_content == {"done": 5}


async def test_what_cannot_be_meant_is_an_error_with_its_code(client, connect_plain, stage):
    async with client, connect_plain as plain:
        created, actor = await begun(client, stage)
        altered = created.task_id[:-1] + ("A" if created.task_id[-1] != "A" else "B")
        for task_id in ("made-up", "", altered):
            assert await code_of(told_task(client, task_id)) == INVALID_PARAMS
        assert await code_of(told_task(plain, created.task_id)) == MISSING_REQUIRED_CLIENT_CAPABILITY
        assert await code_of(told_task(client, created.task_id, OldResultOfTask)) == METHOD_NOT_FOUND
        assert await code_of(told_task(client, created.task_id, UnnamedGetTask)) == HEADER_MISMATCH
        actor.returns({})


async def test_a_client_that_declares_nothing_is_never_answered_with_a_task(connect_plain, stage):
    async with connect_plain as client:
        answered = await client.call_tool("play_long", {"stage": stage.path})
        (await stage.enters()).returns({})
    assert answered.structured_content["status"] == "running"


async def test_the_tool_list_of_a_client_that_knows_tasks_has_no_status_tools(client):
    async with client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert not {"task_result", "task_cancel"} & tools.keys()
    assert tools["mirrored"].output_schema["anyOf"][0]["properties"].keys() == {"x", "y"}


class ToldAnything(ToldTask):
    """An acknowledgement has no fields."""

    task_id: str = ""
    status: str = ""
    created_at: str = ""
    last_updated_at: str = ""
    ttl_ms: int | None = None


@pytest.fixture
def connect_plain(address):
    return Client(address)


async def code_of(request):
    with pytest.raises(MCPError) as error:
        await request
    return error.value.code
