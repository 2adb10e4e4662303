"""A worker over HTTPS as anybody would write it: plain requests, and nothing of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}


def spec(name: str, **more: Any) -> dict[str, Any]:
    """A tool as it is announced."""
    return {"name": name, "description": f"The tool {name}.", "input_schema": SCHEMA, **more}


class Remote:
    """One worker, with one key."""

    def __init__(self, url: str, key: str, name: str = "laptop") -> None:
        self.name = name
        self.http = httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=40)

    async def say(self, what: str, **said: Any) -> httpx.Response:
        return await self.http.post(f"/v1/work/{what}", json=said)

    async def announce(self, *tools: dict[str, Any], **more: Any) -> httpx.Response:
        return await self.say("announce", worker=self.name, tools=list(tools), **more)

    async def poll(self, wait_s: float = 10, calls: int = 10) -> list[dict[str, Any]]:
        answer = await self.say("poll", worker=self.name, wait_s=wait_s, calls=calls)
        assert answer.status_code == 200, answer.text
        return answer.json()["calls"]

    async def begin(self, offer: dict[str, Any]) -> str:
        answer = await self.say("ack", offer=offer["offer"])
        assert answer.status_code == 200, answer.text
        return answer.json()["attempt"]

    async def beat(self, *attempts: str) -> httpx.Response:
        return await self.say("heartbeat", worker=self.name, attempts=list(attempts))

    async def returned(self, attempt: str, content: str = "done") -> httpx.Response:
        return await self.say("result", attempt=attempt, result={"type": "returned", "content": content})


async def offered(api, tool: str) -> None:
    """Return once the orchestrator has noticed that a tool is served."""
    async with asyncio.timeout(10):
        while tool not in await api.door.orchestrator.catalog.offered():
            await asyncio.sleep(0.05)


def calling(api, tool: str, **arguments: Any) -> asyncio.Task[Any]:
    """A call on its way."""
    return asyncio.create_task(api.door.orchestrator.call(tool, arguments, patience_s=30))
