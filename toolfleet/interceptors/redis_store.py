"""Kept results of a whole fleet, in its Redis. Apart from the others: importing those loads no Redis."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio

from toolfleet.calls import Returned
from toolfleet.connections import connect_async
from toolfleet.errors import OperatorError, Refused
from toolfleet.local.finding import running_redis
from toolfleet.misspelt import exact
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal

log = logging.getLogger("toolfleet.interceptors")

MAX_BYTES = 256 * 1024
"""A larger result is not kept: Redis should not fill up with what is quickly asked again."""


@exact()
class RedisStore:
    """For `Cache(ttl_s, store=RedisStore())`. A Redis that is away costs a call, no failure."""

    def __init__(self, settings: Settings | None = None) -> None:
        """The settings of the fleet, unless given those of an `Orchestrator()`. Nothing is connected yet."""
        self._settings = settings
        self._seal: Seal | None = None
        # A worker of threads has a loop for each, and a connection belongs to one.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = WeakKeyDictionary()

    async def get(self, digest: str) -> Returned | None:
        """Return the result that the fleet itself kept under this digest."""
        try:
            client, seal, settings = self._connect()
            sealed: Any = await client.get(settings.keys.cached(digest))
            result = None if sealed is None else seal.open_result(sealed, f"cached.{digest}")
        except (redis.RedisError, OperatorError, Refused) as error:
            log.warning("cached_result_not_read: %s", error)
            return None
        return result if isinstance(result, Returned) else None

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result."""
        try:
            client, seal, settings = self._connect()
            sealed = seal.close_result(result, f"cached.{digest}")
            if len(sealed) > MAX_BYTES:
                return
            await client.set(settings.keys.cached(digest), sealed, px=max(1, round(ttl_s * 1000)))
        except (redis.RedisError, OperatorError) as error:
            log.warning("result_not_cached: %s", error)

    def _connect(self) -> tuple[redis.asyncio.Redis, Seal, Settings]:
        settings = self._settings = self._settings or _find_settings()
        seal = self._seal = self._seal or Seal(settings)
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = connect_async(settings)
        return self._clients[loop], seal, settings


def _find_settings() -> Settings:
    """Return the settings of the fleet that runs. Its server stays up without us: who performs a call uses it."""
    with running_redis(read_settings()) as settings:
        return settings
