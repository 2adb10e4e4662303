"""What a call's tool has logged, read back from Redis. Reads only."""

from __future__ import annotations

from typing import Any, Final

import redis.asyncio

from toolfleet.call_log import CallLog, open_log
from toolfleet.errors import StoreRefuses
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.wire import Seal

MAX_PARTS: Final = 2000
"""More than any worker leaves there; what else there is nobody of the fleet has written."""

LOST: Final = b""
"""The member whose score says how many lines are kept no more."""


class CallLogReader:
    """Reads the logs of calls."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal

    async def of(self, call_id: str) -> CallLog:
        """Return what is kept of a call's log; an empty one where there is nothing. Raises StoreUnreachable."""
        key = self._keys.call_log(call_id)
        found: Any = []
        try:
            found = await self._client.zrange(key, -MAX_PARTS, -1, withscores=True)
        except StoreRefuses as error:  # it is of another type: none of ours
            skip("call log", error, call_id=call_id)
        scores: dict[bytes, float] = dict(found)
        return open_log(self._seal, key, call_id, [part for part in scores if part != LOST], scores.get(LOST, 0.0))
