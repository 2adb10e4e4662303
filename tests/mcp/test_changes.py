"""Clients hear when tools come and go, in the way of their era."""

import asyncio
import os
import signal

import pytest
from mcp import Client
from mcp_types import ToolListChangedNotification

from tests.mcp.conftest import HERE
from tests.mcp.doors import piped, served
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import mcp_app

WAIT_S = 30


@pytest.fixture
def changing():
    """A fleet whose second worker, with another tool, comes later."""
    with LocalFleet(["mcp_tools"], pools={"io": 1}, environment=HERE, lease_s=3, heartbeat_s=0.5) as fleet:
        yield fleet


def second_worker(fleet):
    fleet._modules = ["late_tools"]
    worker = fleet.start_worker("io")
    fleet.wait_until_ready()
    return worker


async def names(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def test_a_client_of_the_handshake_era_is_told_on_its_connection(changing):
    changed = asyncio.Queue()

    async def hear(message):
        if isinstance(message, ToolListChangedNotification):
            changed.put_nowait(message)

    async with Client(piped(changing), mode="legacy", message_handler=hear) as client:
        assert client.server_capabilities.tools.list_changed
        assert "late" not in await names(client)
        worker = await asyncio.to_thread(second_worker, changing)
        await asyncio.wait_for(changed.get(), WAIT_S)
        assert "late" in await names(client)
        os.kill(worker.pid, signal.SIGTERM)
        await asyncio.wait_for(changed.get(), WAIT_S)
        assert "late" not in await names(client)


async def test_a_client_that_listens_is_told_on_its_subscription(changing):
    async with (
        Orchestrator(settings=changing.settings) as orchestrator,
        served(mcp_app(orchestrator)) as address,
        Client(address) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        assert "late" not in await names(client)
        await asyncio.to_thread(second_worker, changing)
        await asyncio.wait_for(anext(changes), WAIT_S)
        assert "late" in await names(client)
