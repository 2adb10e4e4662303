"""What stands in queues' waiting rooms, for people: how many calls wait there, and their messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import Any, Final, cast

import orjson
import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.scripts import lua

LOOK: Final = lua(__package__, "look")

PLAIN_WAITING: Final = "plain"
"""Where a room's state has how many plain messages wait."""

PLAIN_PARTS: Final = (b"b", b"h", b"p", b"id", b"claim", b"ends")
"""What such a message's parts in the list of its run are, in their order; the last one is no field of it.

One that has been with a worker has all its fields as JSON in the place of its body, and no headers.
"""


def ask_how_many_wait(pipeline: Any, keys: Keys, queue: str) -> None:
    """Add to a pipeline the two commands whose replies `how_many_wait` reads."""
    pipeline.hlen(keys.room_calls(queue))
    pipeline.hget(keys.room(queue), PLAIN_WAITING)


def how_many_wait(replies: Sequence[Any]) -> int:
    """Return how many calls wait in a room, plain ones and others; what cannot be read counts for none."""
    others, plain = replies
    bound = 0 if isinstance(others, Exception) else int(others)
    return bound + (int(plain) if isinstance(plain, (bytes, str)) and plain.isdigit() else 0)


async def messages_in_rooms(client: redis.asyncio.Redis, keys: Keys, at_once: int) -> AsyncIterator[dict[bytes, bytes]]:
    """Yield the fields of all messages in all rooms. Raises StoreUnreachable."""
    look = client.register_script(LOOK)
    async for calls in client.scan_iter(keys.room_calls("*"), count=at_once, _type="hash"):
        cursor = b"0"
        while True:
            cursor, messages = await cast("Awaitable[Any]", look(keys=[calls], args=[cursor, at_once]))
            for flat in messages:
                yield dict(zip(flat[::2], flat[1::2], strict=False))
            if cursor == b"0":
                break
    async for line in client.scan_iter(keys.room_plain_line("*", "*"), count=at_once, _type="list"):
        size = at_once * len(PLAIN_PARTS)
        first = 0
        while parts := await cast("Awaitable[list[bytes]]", client.lrange(line, first, first + size - 1)):
            for message in _plain_messages(parts):
                yield message
            first += size


def _plain_messages(parts: Sequence[bytes]) -> Iterator[dict[bytes, bytes]]:
    for at in range(0, len(parts), len(PLAIN_PARTS)):
        its = parts[at : at + len(PLAIN_PARTS)]
        has_been_read = its[1:2] == [b""]
        yield _fields_in(its[0]) if has_been_read else dict(zip(PLAIN_PARTS[:-1], its, strict=False))


def _fields_in(text: bytes) -> dict[bytes, bytes]:
    """Return the fields that stand there as JSON; none where anybody else has written."""
    try:
        flat = orjson.loads(text)
    except ValueError:
        return {}
    if not (isinstance(flat, list) and all(isinstance(part, str) for part in flat)):
        return {}
    return {name.encode(): value.encode() for name, value in zip(flat[::2], flat[1::2], strict=False)}
