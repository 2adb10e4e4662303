"""A server that is told to stop ends in order what its clients listen to, and answers what it was asked."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx
import pytest

from tests.mcp.conftest import HERE
from tests.mcp.news import listening
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.orchestrator.doors.http.listening import GRACE_S
from toolfleet.wire import Seal

WAIT_S = 30
REVISION = "2025-06-18"

COMMANDS = {"alone": ("mcp", "--http", "--port", "0"), "mounted": ("serve", "--no-model", "--port", "0")}


@pytest.fixture(params=COMMANDS)
async def server(request: pytest.FixtureRequest, fleet: LocalFleet) -> AsyncIterator[tuple[Process, int]]:
    """The process, and the terminal that it complains to."""
    terminal, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *COMMANDS[request.param]),
        env={**os.environ, **HERE, **fleet.settings.as_environment()},
        stdout=asyncio.subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield process, terminal
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        os.close(terminal)


@asynccontextmanager
async def asked(fleet: LocalFleet, server: Process) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """A client with a key, and the address of MCP."""
    said = ""
    while "Ready" not in said:
        said += (await asyncio.wait_for(server.stdout.readline(), WAIT_S)).decode()
    url = re.search(r"http://[\d.]+:\d+", said)[0]
    async with aclosing(connect_async(fleet.settings)) as redis:
        key, _ = await Keyring(redis, fleet.settings, Seal(fleet.settings)).add(scopes=(Scope.RUN,))
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=WAIT_S) as client:
        yield client, f"{url}/mcp"


def sent(method: str, id_: int | None = None, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **({} if id_ is None else {"id": id_})}


async def session_of(client: httpx.AsyncClient, url: str) -> dict[str, str]:
    """The headers of a session, as the revisions have it that begin with one."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": REVISION}
    about = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    begun = await client.post(url, headers=headers, json=sent("initialize", 1, **about))
    headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    await client.post(url, headers=headers, json=sent("notifications/initialized"))
    return headers


async def test_who_listens_is_let_go_and_what_was_asked_is_answered(fleet, server, stage):
    process, terminal = server
    async with asked(fleet, process) as (client, url):
        session = await session_of(client, url)
        call = sent("tools/call", 2, name="play", arguments={"stage": stage.path})
        called = asyncio.create_task(client.post(url, headers=session, json=call))
        actor = await stage.enters()
        async with client.stream("GET", url, headers=session) as changes, listening(client, url, []) as news:
            assert changes.status_code == 200
            assert (await anext(news))["method"] == "notifications/subscriptions/acknowledged"
            began_s = asyncio.get_running_loop().time()
            process.send_signal(signal.SIGINT)
            assert [frame["result"]["resultType"] async for frame in news] == ["complete"]
            assert [line async for line in changes.aiter_lines() if line.startswith("data")] == []
            assert asyncio.get_running_loop().time() - began_s < GRACE_S
        # After a second (`mcp_wait_s`): what comes with the SDK ends streams within half of one.
        assert "play is still running" in (await called).text
        actor.returns("played to its end")
    await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0
    said = os.read(terminal, 4096).decode()
    assert said == f"Stopping: requests have {GRACE_S} s to end. Ctrl-C again stops at once.\r\n"
