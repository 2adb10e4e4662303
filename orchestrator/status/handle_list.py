"""The handles of a tenant, and how their calls stand: by an index, no search."""

from __future__ import annotations

from typing import cast

import redis.asyncio

from toolfleet.orchestrator.status.call_reader import AskedCall, CallReader, HandleRecord
from toolfleet.orchestrator.status.handles import Status, status_of
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.wire import Seal


class HandleList:
    """Reads lists of handles. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self._calls = CallReader(client, settings, seal)

    async def of(self, *, tenant: str, limit: int) -> list[Status]:
        """Return how the calls of so many handles stand, those first whose records are kept longest."""
        listed = cast("list[bytes]", await self._client.zrevrange(self._keys.handles_of(tenant), 0, limit - 1))
        handles = [text_of(handle) for handle in listed]
        keys = [self._keys.handle(handle) for handle in handles]
        sealed = cast("list[bytes | None]", await self._client.mget(keys)) if keys else []
        asked = [
            AskedCall.of_handle(handle, record)
            for handle, key, text in zip(handles, keys, sealed, strict=True)
            if (record := HandleRecord.opened(self._seal, text, key)) is not None and record.principal == tenant
        ]
        found = await self._calls.read(asked)
        return [status_of(each.handle, each, found[each.call_id]) for each in asked]
