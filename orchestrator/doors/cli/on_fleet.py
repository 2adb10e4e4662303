"""The one way in which a command does its work: on this user's fleet, with an event loop of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from redis.asyncio import Redis

from toolfleet.connections import connect_async
from toolfleet.local.fleet import redis_or_embedded, redis_or_shards
from toolfleet.settings import Settings, read_settings
from toolfleet.shards import SEPARATOR

T = TypeVar("T")


def on_fleet(work: Callable[[Settings], Coroutine[Any, Any, T]]) -> T:
    """Return what `work` makes of the settings of this user's fleet; its server runs for so long.

    Raises what `redis_or_embedded` raises, and what `work` raises.
    """
    with redis_or_embedded(**_shard_named_by(sys.argv[1:])) as settings:
        return asyncio.run(work(settings))


def on_redis(work: Callable[[Redis, Settings], Awaitable[T]]) -> T:
    """Do as `on_fleet`, with a connection to the fleet's Redis, which is closed afterwards."""

    async def connected(settings: Settings) -> T:
        async with aclosing(connect_async(settings)) as client:
            return await work(client, settings)

    return on_fleet(connected)


def on_all_of_fleet(work: Callable[[Settings], Coroutine[Any, Any, T]]) -> T:
    """Do as `on_fleet`, with settings that are for all shards where there are some and none of them is meant."""
    with redis_or_shards() as settings:
        return asyncio.run(work(settings))


def _shard_named_by(words: Sequence[str]) -> dict[str, str]:
    """Return the shard as a setting that the ids on the command line are on, where the settings leave it open."""
    settings = read_settings()
    if not settings.is_for_all_shards:
        return {}
    named = {word.partition(SEPARATOR)[0] for word in words if SEPARATOR in word}
    meant = named.intersection(settings.all_shards.names)
    return {"shard": meant.pop()} if len(meant) == 1 else {}
