"""Kept results of a whole fleet, in its Redis. Apart from the others: importing those loads no Redis."""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakKeyDictionary

import redis

from toolfleet.calls import Returned
from toolfleet.connections import connect_async
from toolfleet.errors import OperatorError
from toolfleet.kept_results import KeptResults
from toolfleet.local.finding import running_redis
from toolfleet.misspelt import exact
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal

log = logging.getLogger("toolfleet.interceptors")


@exact()
class RedisStore:
    """For `Cache(ttl_s, store=RedisStore())`. A Redis that is away costs a call, no failure."""

    def __init__(self, settings: Settings | None = None) -> None:
        """The settings of the fleet, unless given those of an `Orchestrator()`. Nothing is connected yet."""
        self._settings = settings
        self._seal: Seal | None = None
        # A worker of threads has a loop for each, and a connection belongs to one.
        self._kept_on: WeakKeyDictionary[asyncio.AbstractEventLoop, KeptResults] = WeakKeyDictionary()

    async def get(self, digest: str) -> Returned | None:
        """Return the result that the fleet itself kept under this digest."""
        try:
            return await self._kept().get(digest)
        except (redis.RedisError, OperatorError) as error:
            log.warning("cached_result_not_read: %s", error)
            return None

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result."""
        try:
            await self._kept().put(digest, result, ttl_s)
        except (redis.RedisError, OperatorError) as error:
            log.warning("result_not_cached: %s", error)

    def _kept(self) -> KeptResults:
        settings = self._settings = self._settings or _find_settings()
        seal = self._seal = self._seal or Seal(settings)
        loop = asyncio.get_running_loop()
        if loop not in self._kept_on:
            self._kept_on[loop] = KeptResults(connect_async(settings), settings.keys, seal)
        return self._kept_on[loop]


def _find_settings() -> Settings:
    """Return the settings of the fleet that runs. Its server stays up without us: who performs a call uses it."""
    with running_redis(read_settings()) as settings:
        return settings
