"""The handles of a tenant, and how their calls stand: page by page of an index, no search.

A page begins behind the last handle of the one before, wherever that stands by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import redis.asyncio

from toolfleet.orchestrator.status.call_reader import AskedCall, CallReader, HandleRecord
from toolfleet.orchestrator.status.handles import Status, status_of
from toolfleet.orchestrator.store.run_pages import place_in
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

LOOKED_AT_MAX: Final = 1000
"""At how many handles one page looks, where only those are wanted whose calls go on."""


class HandlePage(NamedTuple):
    """Some handles, and what the next page is asked for with; empty when there is none."""

    handles: list[Status]
    after: str


class HandleList:
    """Reads lists of handles. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self._calls = CallReader(client, settings, seal)

    async def page(self, *, tenant: str, limit: int, after: str = "", only_open: bool = False) -> HandlePage:
        """Return how the calls of so many handles stand, those first that are kept longest. Raises BadCursor."""
        at = await self._begins(tenant, after)
        found: list[Status] = []
        begins = at
        while True:
            listed = await self._listed(tenant, at, limit)
            standing = {each.task_id: each for each in await self._standing(tenant, [name for name, _ in listed])}
            ends = at + len(listed)
            for name, score in listed:
                at, after = at + 1, f"{score:.0f}_{name}"
                status = standing.get(name)
                if status is not None and not (only_open and status.is_terminal):
                    found.append(status)
                if len(found) == limit:
                    break
            if len(listed) < limit and at == ends:
                return HandlePage(found, "")
            if len(found) == limit or at - begins >= LOOKED_AT_MAX:
                return HandlePage(found, after)

    async def _begins(self, tenant: str, after: str) -> int:
        """Return the place behind a handle, or where it would stand."""
        score, last = place_in(after)
        if not last:
            return 0
        listed = self._keys.handles_of(tenant)
        rank = cast("int | None", await self._client.zrevrank(listed, last))
        return rank + 1 if rank is not None else await self._client.zcount(listed, f"({score}", "+inf")

    async def _listed(self, tenant: str, at: int, count: int) -> list[tuple[str, float]]:
        listed = await self._client.zrevrange(self._keys.handles_of(tenant), at, at + count - 1, withscores=True)
        return [(text_of(handle), score) for handle, score in cast("list[tuple[bytes, float]]", listed)]

    async def _standing(self, tenant: str, handles: Sequence[str]) -> list[Status]:
        keys = [self._keys.handle(handle) for handle in handles]
        sealed = cast("list[bytes | None]", await self._client.mget(keys)) if keys else []
        asked = [
            AskedCall.of_handle(handle, record)
            for handle, key, text in zip(handles, keys, sealed, strict=True)
            if (record := HandleRecord.opened(self._seal, text, key)) is not None and record.principal == tenant
        ]
        found = await self._calls.read(asked)
        return [status_of(each.handle, each, found[each.call_id]) for each in asked]
