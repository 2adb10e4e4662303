"""How many commands Redis carries out for a piece of work, and how many times it is spoken to, without a clock.

Counted by the server itself: commands inside scripts too, each by its name. A fleet does things at its own pace as well
(leases, announcements, reads that waited in vain), so work is done many times over and divided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

PREFIX = "cmdstat_"
OURS = "info"
"""The command that counts is not counted."""


@dataclass(frozen=True)
class Counted:
    """What a server has done so far: commands by name, and reads from its clients (a large request takes several)."""

    commands: Mapping[str, int]
    reads: int

    @classmethod
    async def by(cls, client: Redis) -> Counted:
        """Ask the server, in one round trip."""
        async with client.pipeline(transaction=False) as pipe:
            pipe.info("commandstats")
            pipe.info("stats")
            stats, totals = await pipe.execute()
        commands = {name.removeprefix(PREFIX): said["calls"] for name, said in stats.items()}
        return cls({name: calls for name, calls in commands.items() if name != OURS}, totals["total_reads_processed"])

    def since(self, before: Counted) -> Counted:
        """What was done in between; the reads of the two askings left out."""
        grown = {name: calls - before.commands.get(name, 0) for name, calls in self.commands.items()}
        return Counted({name: calls for name, calls in grown.items() if calls}, self.reads - before.reads - 1)

    def for_each(self, n: int, idle: Counted) -> Counted:
        """For each of `n` pieces of work, to the nearest whole; `idle` is what the fleet does in as much time alone."""
        each = {name: round((calls - idle.commands.get(name, 0)) / n) for name, calls in self.commands.items()}
        commands = {name: calls for name, calls in each.items() if calls > 0}
        return Counted(commands, round((self.reads - idle.reads) / n))


async def counted(client: Redis, work: Callable[[], Awaitable[Any]]) -> tuple[Counted, Counted]:
    """What the server does for some work, and in as much time without it."""
    begin, before = time.monotonic(), await Counted.by(client)
    await work()
    took_s, after = time.monotonic() - begin, await Counted.by(client)
    await asyncio.sleep(took_s)
    return after.since(before), (await Counted.by(client)).since(after)
