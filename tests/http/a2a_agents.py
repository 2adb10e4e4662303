"""The official client, as each test has it: one key, one binding."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from google.protobuf.json_format import ParseDict

from tests.http.fleet_of_doors import WAIT_S, Api
from toolfleet.orchestrator.doors.http.key_store import Scope

CARD = "/.well-known/agent-card.json"

COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING
ASKS = TaskState.TASK_STATE_INPUT_REQUIRED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED


def said(*parts: str | Part, message_id: str = "", **ids: str) -> Message:
    """A message of the user's."""
    return Message(
        message_id=message_id or secrets.token_hex(8),
        role=Role.ROLE_USER,
        parts=[Part(text=each) if isinstance(each, str) else each for each in parts],
        **ids,
    )


def data(value: Any) -> Part:
    part = Part()
    ParseDict(value, part.data)
    return part


def text_of(task: Task) -> str:
    """The answer."""
    [answer] = [each for each in task.artifacts if each.artifact_id == "answer"]
    return answer.parts[0].text


@dataclass(frozen=True)
class Agent:
    """The official client of an agent, whichever binding and version it speaks."""

    url: str
    key: str
    client: Client
    http: httpx.AsyncClient

    @classmethod
    @asynccontextmanager
    async def at(
        cls, url: str, key: str, *, binding: str = "JSONRPC", version: str = "1.0", **config: Any
    ) -> AsyncIterator[Agent]:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(headers=headers, timeout=WAIT_S) as http:
            card = await A2ACardResolver(http, url).get_agent_card()
            all_ = card.supported_interfaces
            spoken = [each for each in all_ if (each.protocol_binding, each.protocol_version) == (binding, version)]
            only = AgentCard()
            only.CopyFrom(card)
            del only.supported_interfaces[:]
            only.supported_interfaces.extend(spoken)
            bindings = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], **config)
            client = ClientFactory(bindings).create(only)
            if version != "1.0":
                http.headers.pop("a2a-version", None)
            yield cls(url, key, client, http)

    @classmethod
    @asynccontextmanager
    async def of_tenant(cls, api: Api, tenant: str, *scopes: Scope, **more: Any) -> AsyncIterator[Agent]:
        tools = more.pop("tools", ("*",))
        key, made = await api.door.keyring.add(tenant=tenant, scopes=scopes, tools=tools)
        try:
            async with cls.at(api.url, key, **more) as agent:
                yield agent
        finally:
            await api.door.keyring.revoke(made.key_id)

    async def stream(self, message: Message, **wanted: Any) -> list[StreamResponse]:
        """All that is heard of a task that a message begins, or goes to."""
        return [event async for event in self.streaming(message, **wanted)]

    async def streaming(self, message: Message, **wanted: Any) -> AsyncIterator[StreamResponse]:
        request = SendMessageRequest(message=message)
        ParseDict(wanted.pop("metadata", {}), request.metadata)
        ParseDict(wanted, request.configuration)
        async for event in self.client.send_message(request):
            yield event

    async def ask(self, message: Message, **wanted: Any) -> Task:
        """The task, once it has ended or asks something: asked for in one piece."""
        async with self.at(self.url, self.key, streaming=False) as plain:
            [event] = await plain.stream(message, **wanted)
            return event.task

    async def get(self, task_id: str, **wanted: Any) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task_id, **wanted))

    async def cancel(self, task_id: str) -> Task:
        return await self.client.cancel_task(CancelTaskRequest(id=task_id))

    async def listed(self, **wanted: Any) -> ListTasksResponse:
        return await self.client.list_tasks(ListTasksRequest(**wanted))

    def subscribed(self, task_id: str) -> AsyncIterator[StreamResponse]:
        return self.client.subscribe(SubscribeToTaskRequest(id=task_id))

    async def rpc(self, method: str, params: Any, *, version: str | None = "1.0", **headers: str) -> dict[str, Any]:
        """What a request by hand is answered."""
        said = {"a2a-version": version, **headers} if version is not None else headers
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {self.key}"}, timeout=WAIT_S) as http:
            response = await http.post(f"{self.url}/a2a", json=body, headers=said)
        return response.json()
