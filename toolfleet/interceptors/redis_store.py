"""Kept results of a whole fleet, in its Redis. Apart from the others: importing those loads no Redis."""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from pydantic import ValidationError

from toolfleet.calls import Record, Returned
from toolfleet.connections import connect_async
from toolfleet.errors import OperatorError, Refused
from toolfleet.local.finding import running_redis
from toolfleet.misspelt import exact
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal

log = logging.getLogger("toolfleet.interceptors")

MAX_BYTES = 256 * 1024
"""A larger result is not kept: Redis should not fill up with what is quickly asked again."""


class _Kept(Record):
    """What is sealed: a result, and until when it is given, by the server's clock."""

    until_unix_s: float
    result: Returned


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
            key = settings.keys.cached(digest)
            pipeline = client.pipeline(transaction=False)
            pipeline.get(key)
            pipeline.time()
            sealed, now = await pipeline.execute()
            kept = None if sealed is None else _Kept.model_validate_json(seal.open_kept(sealed, key), extra="ignore")
        except (redis.RedisError, OperatorError, Refused, ValidationError) as error:
            log.warning(
                "cached_result_not_read: %s", error if not isinstance(error, ValidationError) else "wrong shape"
            )
            return None
        # The key's own end is anybody's to take away.
        return kept.result if kept is not None and _unix_s(now) < kept.until_unix_s else None

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result."""
        try:
            client, seal, settings = self._connect()
            key = settings.keys.cached(digest)
            kept = _Kept(until_unix_s=_unix_s(await client.time()) + ttl_s, result=result)
            sealed = seal.close_kept(kept.model_dump_json().encode(), key)
            if len(sealed) > MAX_BYTES:
                return
            await client.set(key, sealed, px=max(1, round(ttl_s * 1000)))
        except (redis.RedisError, OperatorError) as error:
            log.warning("result_not_cached: %s", error)

    def _connect(self) -> tuple[redis.asyncio.Redis, Seal, Settings]:
        settings = self._settings = self._settings or _find_settings()
        seal = self._seal = self._seal or Seal(settings)
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = connect_async(settings)
        return self._clients[loop], seal, settings


def _unix_s(time: tuple[int, int]) -> float:
    seconds, microseconds = time
    return seconds + microseconds / 1e6


def _find_settings() -> Settings:
    """Return the settings of the fleet that runs. Its server stays up without us: who performs a call uses it."""
    with running_redis(read_settings()) as settings:
        return settings
