"""What a client is told on `subscriptions/listen`, with plain HTTP: the SDK hands on no news of an extension."""

from __future__ import annotations

import asyncio
import json

WAIT_S = 30


class listening:  # noqa: N801  # used as a statement
    """The frames of one `subscriptions/listen`."""

    def __init__(self, http, address, task_ids, *, user="ann", extensions=None, **capabilities):
        known = {"io.modelcontextprotocol/tasks": {}} if extensions is None else extensions
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": known, **capabilities},
        }
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "subscriptions/listen",
            "params": {"notifications": {"taskIds": task_ids}, "_meta": meta},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "subscriptions/listen",
            "x-user": user,
        }
        self._stream = http.stream("POST", address, json=body, headers=headers)

    async def __aenter__(self):
        return frames_of(await self._stream.__aenter__())

    async def __aexit__(self, *exc_info):
        await self._stream.__aexit__(*exc_info)


async def frames_of(response):
    """What comes on a stream, or the one answer there is to a request that is refused."""
    if response.status_code != 200:
        yield json.loads(await response.aread())
    async for line in response.aiter_lines():
        if line.startswith("data:") and line.removeprefix("data:").strip():
            yield json.loads(line.removeprefix("data:"))


async def until_told(frames, **wanted):
    """The next frame that tells this."""
    async with asyncio.timeout(WAIT_S):
        async for frame in frames:
            if wanted.items() <= frame["params"].items():
                return frame
    raise AssertionError(wanted)
