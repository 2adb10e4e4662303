"""The second floor: the same as `floor`, with nothing between it and the sockets but hiredis.

A raw connection each for commands and for reads that block. What Redis is asked is the same, entry for entry.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

import hiredis
import orjson
import uvloop

from benchmarks.contender import ARGUMENT, Command, Task, Workload
from benchmarks.contenders.floor import BLOCK_MS, CALLS, FIELD, GROUP, READ_COUNT, REPLIES, CallsOfATick, results_of

Words = tuple[bytes | str | int, ...]
Entry = tuple[bytes, list[bytes]]


class RawConnection(asyncio.Protocol):
    """A socket to Redis: commands go out together, replies come back in their order."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[list[Any]], int]] = deque()
        self._got: list[Any] = []
        self._transport: asyncio.WriteTransport

    @classmethod
    async def to(cls, url: str) -> RawConnection:
        """Connect; a floor needs no password and no TLS."""
        address = urlsplit(url)
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, address.hostname or "localhost", address.port or 6379
        )
        return connection

    def request(self, commands: Sequence[Words]) -> asyncio.Future[list[Any]]:
        """Send commands; the future has a reply to each."""
        replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((replies, len(commands)))
        pack: Callable[[Words], bytes] = hiredis.pack_command  # type: ignore[assignment]  # of any length, whatever it says
        self._transport.write(b"".join(map(pack, commands)))
        return replies

    def close(self) -> None:
        """Close the socket."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Give every reply that is whole to whoever waits for it."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._got.append(reply)
            waiting, count = self._waiting[0]
            if len(self._got) == count:
                self._waiting.popleft()
                if not waiting.done():
                    waiting.set_result(self._got)
                self._got = []


class RawFloor(CallsOfATick):
    """One task writes, one reads."""

    settings: ClassVar[str] = "asyncio.Protocol + hiredis + uvloop; one worker; a write per tick; XREADGROUP COUNT 1000"

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self._url = redis_url

    def worker(self, workload: Workload) -> Command:
        """The same for both workloads: coroutines."""
        del workload
        return Command((sys.executable, "-m", __name__, self._url))

    async def connect(self) -> None:
        """Make the group, so that the first calls are not before its beginning."""
        self._commands = await RawConnection.to(self._url)
        self._replies = await RawConnection.to(self._url)
        await make_group(self._commands)
        self._reader = asyncio.create_task(self._read_replies())

    async def close(self) -> None:
        """Stop reading and close the connections."""
        self._reader.cancel()
        await asyncio.wait([self._reader])
        self._commands.close()
        self._replies.close()

    async def _send(self, calls: Sequence[tuple[int, Task]]) -> None:
        await self._commands.request([added(CALLS, (call_id, task, ARGUMENT)) for call_id, task in calls])

    async def _read_replies(self) -> None:
        last: bytes | str = "0"
        while True:
            read = ("XREAD", "COUNT", READ_COUNT, "BLOCK", BLOCK_MS, "STREAMS", REPLIES, last)
            if entries := entries_of(await self._replies.request([read])):
                for _, fields in entries:
                    call_id, result = orjson.loads(fields[1])
                    self._waiting.pop(call_id).set_result(result)
                last = entries[-1][0]
                await self._replies.request([("XTRIM", REPLIES, "MINID", "~", last)])


def added(stream: str, value: Any) -> Words:
    """The command that adds one entry."""
    return ("XADD", stream, "*", FIELD, orjson.dumps(value))


def entries_of(replies: list[Any]) -> Sequence[Entry]:
    """The entries that one read of one stream has found; none when it waited in vain. Raises what Redis refuses."""
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    return cast("Sequence[Entry]", reply[0][1] if reply else ())


async def answer(connection: RawConnection, entries: Sequence[Entry]) -> None:
    """Run a batch and send its replies, acknowledgements and deletions in one write."""
    calls = [orjson.loads(fields[1]) for _, fields in entries]
    results = await results_of(calls)
    replies = [added(REPLIES, (call_id, result)) for (call_id, _, _), result in zip(calls, results, strict=True)]
    entry_ids = [entry_id for entry_id, _ in entries]
    await connection.request([*replies, ("XACK", CALLS, GROUP, *entry_ids), ("XDEL", CALLS, *entry_ids)])


async def work(url: str) -> None:
    """Read batches for ever; a batch that waits does not hold up the next."""
    commands, reads = await RawConnection.to(url), await RawConnection.to(url)
    await make_group(commands)
    read = ("XREADGROUP", "GROUP", GROUP, "worker", "COUNT", READ_COUNT, "BLOCK", BLOCK_MS, "STREAMS", CALLS, ">")
    async with asyncio.TaskGroup() as batches:
        while True:
            if entries := entries_of(await reads.request([read])):
                batches.create_task(answer(commands, entries))


async def make_group(connection: RawConnection) -> None:
    """Make the consumer group unless it is there."""
    await connection.request([("XGROUP", "CREATE", CALLS, GROUP, "0", "MKSTREAM")])


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1]))
