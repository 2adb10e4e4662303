"""MCP at /mcp of the HTTP API, behind its keys."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.mcp.doors import LookedAtBefore, nobody, text
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.orchestrator.doors.http.listening import listening_socket, server_for
from toolfleet.orchestrator.fleet_connection import FleetConnection
from toolfleet.wire import Seal


@asynccontextmanager
async def serving(settings):
    door = listening_socket("127.0.0.1", 0)
    server = server_for(create_app(settings))
    serving = asyncio.create_task(server.serve(sockets=[door]))
    while not server.started:  # its socket refuses whoever comes before
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
async def api(fleet):
    async with serving(fleet.settings) as where:
        yield where


async def test_who_listens_takes_one_of_the_listeners_places_of_their_key(fleet):
    settings = fleet.settings.model_copy(update={"api_listeners": 1})
    async with (
        serving(settings) as url,
        aclosing(connect_async(settings)) as redis,
        a_key(redis, settings) as headers,
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        async with client.listen(tools_list_changed=True):
            with pytest.raises(MCPError):
                async with client.listen(tools_list_changed=True):
                    pytest.fail("a second place was given")
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


@asynccontextmanager
async def a_key(redis, settings):
    keyring = Keyring(redis, settings, Seal(settings))
    key, made = await keyring.add(tenant="ann", scopes=(Scope.RUN,))
    yield {"authorization": f"Bearer {key}"}
    await keyring.revoke(made.key_id)


async def test_a_key_that_may_not_approve_calls_no_tool_that_needs_it_since_it_was_looked_at(fleet, api, monkeypatch):
    monkeypatch.setattr(FleetConnection, "catalog", property(lambda fleet: LookedAtBefore(fleet._services.catalog)))
    async with (
        aclosing(connect_async(fleet.settings)) as redis,
        a_key(redis, fleet.settings) as headers,
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{api}/mcp", http_client=http)) as client,
    ):
        refused = await http.post(f"{api}/v1/tools/pay/call", json={"arguments": {"amount": 5}})
        assert (refused.status_code, "scope approve" in refused.text) == (403, True)
        denied = await client.call_tool("pay", {"amount": 5})
        assert (denied.is_error, "not allowed" in text(denied)) == (True, True)


async def test_U3_a_key_that_may_not_approve_is_not_asked_over_mcp_either(fleet, api):
    async with (
        aclosing(connect_async(fleet.settings)) as redis,
        a_key(redis, fleet.settings) as headers,
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{api}/mcp", http_client=http), elicitation_callback=nobody) as client,
    ):
        assert "at another door: Which seat?" in text(await client.call_tool("choose_seat", {}))


async def test_a_key_opens_what_it_includes_and_nothing_else(fleet, api):
    async with aclosing(connect_async(fleet.settings)) as redis:
        keyring = Keyring(redis, fleet.settings, Seal(fleet.settings))
        key, made = await keyring.add(tenant="ann", scopes=(Scope.RUN,), tools=("add",))
        watching, other = await keyring.add(scopes=(Scope.READ,))
        try:
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http,
                Client(streamable_http_client(f"{api}/mcp", http_client=http)) as client,
            ):
                assert "echo" not in {tool.name for tool in (await client.list_tools()).tools}
                assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
                with pytest.raises(MCPError, match="Unknown tool"):
                    await client.call_tool("echo", {"value": 1})
            async with httpx.AsyncClient() as http:
                for header, status in (({}, 401), ({"authorization": f"Bearer {watching}"}, 403)):
                    assert (await http.post(f"{api}/mcp", headers=header, json={})).status_code == status
        finally:
            for each in (made, other):
                await keyring.revoke(each.key_id)
