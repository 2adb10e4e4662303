"""Packs the histories of runs soon after they have ended: a short one then takes a fifth of the memory in Redis.

Nobody waits for it, and nothing depends on it: a run that nobody has packed is read like any other. One that is written
to again goes on behind its pack, and is packed anew when it ends. Says nothing about what a pack is (`packed.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import redis.asyncio
from redis.exceptions import NoScriptError

from toolfleet.keys import Keys
from toolfleet.orchestrator.store.packed import FIELD, MAX_BYTES, packed, unpacked
from toolfleet.redis_clients import COMMAND_FAILED, StreamEntry
from toolfleet.scripts import lua
from toolfleet.supervision import Kept, Supervisor

_Command = tuple[Any, ...]

PACK_AFTER_S: Final = 0.5
"""How long ended runs are gathered: many are packed with few commands."""

AT_ONCE: Final = 50
"""How many are packed before others have their turn: some milliseconds' work."""

WAITING_MAX: Final = 10_000
"""Of how many ended runs this is remembered while Redis is away; the others stay as they are."""

PACK_WITHIN_S: Final = 2.0
"""How long an orchestrator that stops goes on packing."""

SMALL_BYTES: Final = 2 * MAX_BYTES
"""What a stream takes in Redis that is read at all: its entries and the room that it keeps."""

REWRITE: Final = lua(__package__, "rewrite")


class _Ended(NamedTuple):
    run_id: str
    seal: bytes
    """Of the entry that ended it."""


class Packing:
    """Packs the runs that it is told of, from `start` until `aclose`."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._rewrite = client.register_script(REWRITE)
        self._ended: deque[_Ended] = deque(maxlen=WAITING_MAX)
        self._is_wanted = asyncio.Event()
        self._kept: Kept | None = None

    def start(self, supervisor: Supervisor) -> None:
        """Begin."""
        self._kept = supervisor.keep("packing of runs", self._pack_forever)

    async def aclose(self) -> None:
        """Pack what is left, for a moment, and stop."""
        if self._kept is not None:
            await self._kept.aclose()
        with suppress(*COMMAND_FAILED, TimeoutError):
            async with asyncio.timeout(PACK_WITHIN_S):
                await self._pack_all()

    def has_ended(self, run_id: str, seal: bytes) -> None:
        """Have a run packed soon, if the entry with this seal is still its newest one by then."""
        self._ended.append(_Ended(run_id, seal))
        self._is_wanted.set()

    async def _pack_forever(self) -> None:
        while True:
            await self._is_wanted.wait()
            await asyncio.sleep(PACK_AFTER_S)
            with suppress(*COMMAND_FAILED):  # then again in a moment; others say that Redis is away
                await self._pack_all()

    async def _pack_all(self) -> None:
        while self._ended:
            some = list(islice(self._ended, AT_ONCE))
            await self._pack(some)
            for _ in some:
                self._ended.popleft()
        self._is_wanted.clear()

    async def _pack(self, ended: list[_Ended]) -> None:
        commands: list[_Command] = []
        for each, entries in await self._small(ended):
            whole = unpacked(entries)
            if whole and whole[-1][1].get(b"s") == each.seal and (fields := packed(whole)):
                keys = [self._keys.run(each.run_id), self._keys.packing(each.run_id)]
                args = [each.seal, len(entries), *_as_arguments((whole[-1][0], fields))]
                commands.append(("EVALSHA", self._rewrite.sha, len(keys), *keys, *args))
                await asyncio.sleep(0)  # a long history takes milliseconds, and many end together
        if commands and (unknown := await self._rewritten(commands)):
            await self._client.script_load(REWRITE)
            await self._rewritten(unknown)

    async def _rewritten(self, commands: Sequence[_Command]) -> list[_Command]:
        """Carry the script out so often; those of which the server said that it does not know it.

        Not as redis-py has scripts in pipelines, on a connection of their own. What cannot be packed stays as it is.
        """
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies = await pipeline.execute(raise_on_error=False)
        return [command for command, reply in zip(commands, replies, strict=True) if isinstance(reply, NoScriptError)]

    async def _small(self, ended: list[_Ended]) -> list[tuple[_Ended, list[StreamEntry]]]:
        """Read those that may be short enough: a large history is not read for nothing."""
        pipeline = self._client.pipeline(transaction=False)
        for each in ended:
            pipeline.memory_usage(self._keys.run(each.run_id))
        sizes = await pipeline.execute(raise_on_error=False)
        small = [each for each, size in zip(ended, sizes, strict=True) if isinstance(size, int) and size <= SMALL_BYTES]
        for each in small:
            pipeline.xrange(self._keys.run(each.run_id))
        found = await pipeline.execute(raise_on_error=False) if small else []
        return [(each, entries) for each, entries in zip(small, found, strict=True) if isinstance(entries, list)]


async def unpack(client: redis.asyncio.Redis, keys: Keys, run_id: str) -> None:
    """Write the entries of a pack singly again, if there is one. Raises StoreUnreachable."""
    first = cast("list[StreamEntry]", await client.xrange(keys.run(run_id), count=1))
    if not first or FIELD not in first[0][1]:
        return
    entries = cast("list[StreamEntry]", await client.xrange(keys.run(run_id)))
    whole = unpacked(entries)
    if len(whole) > len(entries):
        args = [part for entry in whole for part in _as_arguments(entry)]
        rewrite = client.register_script(REWRITE)
        await rewrite(
            keys=[keys.run(run_id), keys.packing(run_id)],
            args=[whole[-1][1].get(b"s", b""), len(entries), *args],
        )


def _as_arguments(entry: StreamEntry) -> list[bytes | int]:
    entry_id, fields = entry
    return [entry_id, 2 * len(fields), *(part for field in fields.items() for part in field)]
