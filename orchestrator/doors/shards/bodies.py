"""The body of a request that says by its content which shard it is for: read once here, and read again there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

import orjson
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from toolfleet.orchestrator.doors.agui.identity import InterruptId
from toolfleet.orchestrator.doors.http.access import grant_by_key
from toolfleet.orchestrator.doors.shards.shard_api import ShardApi

RESPONSE: Final = "resp_"


class Replayed:
    """A `receive` that begins with what was read already."""

    def __init__(self, read: list[Message], receive: Receive) -> None:
        self._read = read
        self._receive = receive
        self.body = b"".join(message.get("body", b"") for message in read)

    async def __call__(self) -> Message:
        """Return the next message of the request."""
        return self._read.pop(0) if self._read else await self._receive()


async def replayed(api: ShardApi, scope: Scope, receive: Receive) -> Replayed:
    """Read the body, as far as the API would take it. Raises Problem for whoever has no key, before that."""
    await grant_by_key(api.door, Headers(scope=scope), scope.get("server"))
    options, read, length = api.door.options, [], 0
    with suppress(TimeoutError):
        async with asyncio.timeout(options.body_timeout_s):
            while length <= options.max_body_bytes:
                read.append(await receive())
                length += len(read[-1].get("body", b""))
                if not read[-1].get("more_body", False):
                    break
    return Replayed(read, receive)


class InThread(NamedTuple):
    """What a request of AG-UI says of where it belongs."""

    run_id: str | None
    """The run that it resumes; None for one that it begins."""
    name: str
    """How the client calls what it asks for: the same for each repeat."""


def thread_in(body: bytes) -> InThread:
    """Return where a request of AG-UI belongs; what is no such request may be refused anywhere."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return InThread(None, "")
    if not isinstance(asked, dict):
        return InThread(None, "")
    resumed = asked.get("resume")
    first = resumed[0] if isinstance(resumed, list) and resumed else None
    written = first.get("interruptId") if isinstance(first, dict) else None
    interrupt = InterruptId.read(written) if isinstance(written, str) else None
    return InThread(interrupt and interrupt.run_id, f"{asked.get('threadId')}\0{asked.get('runId')}")


def named_in(body: bytes) -> str | None:
    """Return the id of the response that a request goes on from; None where it names none."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    before = asked.get("previous_response_id") if isinstance(asked, dict) else None
    return before.removeprefix(RESPONSE) if isinstance(before, str) else None
