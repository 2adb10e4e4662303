"""Waiting for what is written to runs: by any number of tasks, over few connections.

Knows the ids of entries and nothing of what they say.
"""

from __future__ import annotations

import asyncio
from typing import Final

import redis.asyncio

from toolfleet.keys import Keys

WAIT_S: Final = 5.0
"""How long one wait is; a run that was deleted is noticed as late as that."""

AT_ONCE: Final = 100
"""Reads that wait on the server, each on a connection of its own. Thousands would use up those of the process, and of
the server, which all others share."""

LOOK_EVERY_S: Final = 1.0
"""How often whoever finds all of those taken looks instead."""


class News:
    """What is new in runs. For one event loop."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._waiting = asyncio.Semaphore(AT_ONCE)

    async def wait(self, run_id: str, after: str) -> bool:
        """Wait until a run has a newer entry than this one, up to `WAIT_S`; whether it has. Raises StoreUnreachable."""
        if self._waiting.locked():
            return await self._look(run_id, after)
        async with self._waiting:
            found = await self._client.xread({self._keys.run(run_id): after}, count=1, block=int(WAIT_S * 1000))
            return bool(found)

    async def _look(self, run_id: str, after: str) -> bool:
        for _ in range(round(WAIT_S / LOOK_EVERY_S)):
            if await self._client.xread({self._keys.run(run_id): after}, count=1):
                return True
            await asyncio.sleep(LOOK_EVERY_S)
        return False
