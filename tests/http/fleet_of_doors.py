"""The real API behind a real uvicorn, and clients of it."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp

from toolfleet.local.local_key import LocalKey
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.listening import ApiServer, listening_socket, server_for
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.settings import Settings

WAIT_S = 20


@dataclass
class Api:
    """One API process's worth of server, in this one."""

    url: str
    app: FastAPI
    server: ApiServer
    client: httpx.AsyncClient
    stranger: httpx.AsyncClient
    local_key: LocalKey

    @property
    def door(self) -> Door:
        return self.app.state.door

    async def begin(self, question: str, **asked: Any) -> str:
        accepted = await self.client.post("/v1/runs", json={"question": question, **asked})
        assert accepted.status_code == 202, accepted.text
        return accepted.json()["run_id"]

    async def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once its events have ended."""
        await self.events(run_id)
        return (await self.client.get(f"/v1/runs/{run_id}")).json()

    async def events(self, run_id: str, *, after: str = "", most: int | None = None, **headers: str) -> list[Any]:
        """(id, type, data) of a run's events, to the end or so many."""
        if after:
            headers["last-event-id"] = after
        async with (
            asyncio.timeout(WAIT_S),
            self.client.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as r,
        ):
            assert r.status_code == 200, await r.aread()
            return await read_events(r, most=most)


async def read_events(response: httpx.Response, *, most: int | None = None) -> list[Any]:
    import json

    found: list[Any] = []
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
            fields = {}
            if most is not None and len(found) >= most:
                return found
    return found


@asynccontextmanager
async def api_of(
    settings: Settings,
    model: ChatModel | None = None,
    *,
    options: ApiOptions | None = None,
    send_buffer_bytes: int | None = None,
    **app: Any,
) -> AsyncIterator[Api]:
    """The API on a free port of loopback; `client` has the key of this machine's user, `stranger` none."""
    with tempfile.TemporaryDirectory() as folder:
        local = LocalKey(Path(folder) / "api.key")
        application = create_app(
            settings, model, options=replace(options or ApiOptions(), local_key_file=local.path), **app
        )
        async with served(application, send_buffer_bytes) as (url, server):
            key = {"authorization": f"Bearer {local.made()}"}
            async with (
                httpx.AsyncClient(base_url=url, timeout=WAIT_S, headers=key) as client,
                httpx.AsyncClient(base_url=url, timeout=WAIT_S) as stranger,
            ):
                yield Api(url, application, server, client, stranger, local)


@asynccontextmanager
async def rehearsed_api(settings: Settings) -> AsyncIterator[Api]:
    """The same with the model that is rehearsed with, on a server of its own."""
    async with RehearsalServer() as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        async with api_of(settings, model) as running:
            yield running


@asynccontextmanager
async def served(application: ASGIApp, send_buffer_bytes: int | None = None) -> AsyncIterator[tuple[str, ApiServer]]:
    """An application behind a real server, on a free port of loopback."""
    bound = listening_socket("127.0.0.1", 0)
    if send_buffer_bytes is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    server = server_for(application)
    server.config.log_level = "warning"
    serving = asyncio.create_task(server._serve(sockets=[bound]))
    while not server.started:
        assert not serving.done(), serving
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}", server
    finally:
        server.should_exit = True
        await serving
        bound.close()
