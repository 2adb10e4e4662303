"""Reads the queues of one worker over HTTPS, once or for as long as it waits. What is read is pending as offered to it.

The commands and what they mean are the transport's own (`toolfleet/streams/reader.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

import redis
import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.streams import Priority
from toolfleet.streams.claiming import claim_commands, sorted_out
from toolfleet.streams.entries import DeliveredEntry
from toolfleet.streams.names import GROUP
from toolfleet.streams.reader import Reader
from toolfleet.streams.scripts import FETCH
from toolfleet.workers.delivery.claims import DUPLICATES
from toolfleet.workers.gateway.waiting import WaitingRoom

LEVELS: Final = tuple(int(level) for level in Priority)

WAITS_AT_MOST_S: Final = 0.5
"""How long one look waits: after each the worker's key is looked at again."""


class WorkerReader:
    """The reads of one poll."""

    def __init__(
        self, client: redis.asyncio.Redis, keys: Keys, room: WaitingRoom, consumer: str, queues: Sequence[str]
    ) -> None:
        self._client = client
        self._keys = keys
        self._room = room
        self._reader = Reader(keys, LEVELS, consumer)
        self._queues = list(queues)
        self._fetch = client.register_script(FETCH)

    async def read(self, budget: int, *, slots: int, wait_s: float) -> list[DeliveredEntry]:
        """Return up to so many entries, claimed where they must be; waits for a moment at most.

        Raises StoreUnreachable, and whatever else Redis refuses it with.
        """
        wait_ms = int(min(wait_s, WAITS_AT_MOST_S) * 1000)
        read, command = self._reader.next_read(self._queues, budget, monotonic(), wait_ms, slots=slots)
        self._queues.append(self._queues.pop(0))  # each has its turn to be the first
        if read.per_stream == 0:
            count = len(read.streams)
            reply = await self._fetch(keys=read.streams, args=command[3 + count :])
            return self._reader.take_fetched(read, reply)
        async with self._room.connection() as connection:
            if connection is None:
                await asyncio.sleep(wait_ms / 1000)
                self._reader.look_for_everything()
                return []
            try:
                [reply] = await connection.request(command)
            except COMMAND_FAILED:
                reply = None
            if reply is None or isinstance(reply, redis.ResponseError):
                await connection.aclose()
        if reply is None or isinstance(reply, redis.ResponseError):
            await asyncio.sleep(0.05)
            self._reader.look_for_everything()  # which creates groups that are missing, or raises what is the matter
            return []
        return await self._claimed(self._reader.deliveries(read, reply))

    async def _claimed(self, entries: list[DeliveredEntry]) -> list[DeliveredEntry]:
        commands = claim_commands(self._keys, entries)
        if not commands:
            return entries
        async with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        kept, copies = sorted_out(entries, replies)
        for copy in copies:
            await drop(self._client, copy.stream, copy.entry_id)
            await self._client.hincrby(self._keys.counters(), DUPLICATES, 1)
        return kept


async def drop(client: redis.asyncio.Redis, stream: str, entry_id: str) -> None:
    """Acknowledge and delete a message."""
    async with client.pipeline(transaction=True) as pipeline:
        pipeline.xack(stream, GROUP, entry_id)
        pipeline.xdel(stream, entry_id)
        await pipeline.execute()
