"""Doors to a fleet for tests, and clients that go through them: the official SDK's, over both transports."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types as types
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client import ClaimContext, ClientExtension, ResultClaim

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.mcp import McpApp
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.tool import ToolSpec

EXTENSION = "io.modelcontextprotocol/tasks"


@asynccontextmanager
async def served(app: McpApp) -> AsyncIterator[str]:
    """The application on a port of its own; its address."""
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()  # whoever comes before the server waits for it
    config = uvicorn.Config(app.alone(), log_level="warning", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


def piped(fleet: LocalFleet) -> StdioServerParameters:
    """The command that a host starts."""
    environment = {**os.environ, **fleet.settings.as_environment()}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "toolfleet.orchestrator.doors.cli", "mcp"], env=environment
    )


class CreatedTask(types.Result):
    """What a call is answered with that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class ToldTask(types.Result):
    """How a task stands."""

    result_type: Literal["complete"] = "complete"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    input_requests: dict[str, types.ElicitRequest] | None = None
    result: types.CallToolResult | None = None


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    name_param = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    name_param = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class UpdateTask(types.Request[UpdateParams, Literal["tasks/update"]]):
    name_param = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class OldResultOfTask(types.Request[TaskParams, Literal["tasks/result"]]):
    """As in the revision before."""

    name_param = "taskId"
    method: Literal["tasks/result"] = "tasks/result"
    params: TaskParams


class UnnamedGetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    """Without the header that names the task."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class TasksExtension(ClientExtension):
    """A client's half of the extension: asks until the task has ended."""

    identifier = EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, created: CreatedTask, ctx: ClaimContext) -> types.CallToolResult:
        while True:
            told = await ctx.session.send_request(GetTask(params=TaskParams(task_id=created.task_id)), ToldTask)
            if told.result is not None:
                return told.result
            await asyncio.sleep(0.05)


def told_task(client: Client, task_id: str, request: type = GetTask) -> Any:
    """`tasks/get`."""
    return client.session.send_request(request(params=TaskParams(task_id=task_id)), ToldTask)


async def until_task_is(client: Client, task_id: str, status: str) -> ToldTask:
    """The task once it has this status."""
    return await until(client, task_id, lambda told: told.status == status)


async def until(client: Client, task_id: str, condition: Callable[[ToldTask], bool]) -> ToldTask:
    """The task once it is as a test wants it; polling is how the extension works."""
    for _ in range(600):
        if condition(told := await told_task(client, task_id)):
            return told
        await asyncio.sleep(0.05)
    raise AssertionError(told)


def text(result: types.CallToolResult) -> str:
    [content] = result.content
    return content.text


async def nobody(_context: Any, _params: Any) -> types.ElicitResult:
    """A user whom tests speak for; a client with one says that it shows forms."""
    raise AssertionError("a test answers itself")


class LookedAtBefore:
    """A catalog as a door saw it before tools came back that need approval; calls are made by the one behind it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    async def offered(self, *names: str) -> dict[str, ToolSpec]:
        now = await self._catalog.offered(*names)
        return {name: spec.model_copy(update={"requires_approval": False}) for name, spec in now.items()}
