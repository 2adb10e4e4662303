"""What a shard's own Redis says of it: its name, whether it has the ids without one, and whether it is drained.

Nothing of it is signed: whoever can write there can keep new runs away from a server that they could empty as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, cast

import redis
import redis.asyncio

from toolfleet.connections import address
from toolfleet.errors import InvalidSettings
from toolfleet.settings import Settings
from toolfleet.skipped import text_of

NAME: Final = "name"
FIRST: Final = "first"
DRAINING: Final = "draining"


class OtherShard(InvalidSettings):
    """The settings call a Redis by a name, or give it a place, that is not its own."""


def must_be_its_shard(client: redis.Redis, settings: Settings) -> None:
    """Write down which shard this Redis is, the first time. Raises OtherShard where it is another, StoreUnreachable."""
    if settings.shard:
        key, said = settings.keys.shard(), _said(settings)
        for field, value in said.items():
            client.hsetnx(key, field, value)
        _check(settings, cast("list[bytes | None]", client.hmget(key, list(said))))


async def must_be_its_shard_async(client: redis.asyncio.Redis, settings: Settings) -> None:
    """Do as `must_be_its_shard`."""
    if settings.shard:
        key, said = settings.keys.shard(), _said(settings)
        for field, value in said.items():
            await client.hsetnx(key, field, value)
        _check(settings, await cast("Awaitable[list[bytes | None]]", client.hmget(key, list(said))))


async def is_draining(client: redis.asyncio.Redis, settings: Settings) -> bool:
    """Whether this shard gets no new runs. Raises StoreUnreachable."""
    return await cast("Awaitable[bytes | None]", client.hget(settings.keys.shard(), DRAINING)) == b"1"


async def drain(client: redis.asyncio.Redis, settings: Settings, *, is_drained: bool) -> None:
    """Keep new runs away from this shard, or no longer; all orchestrators hear of it. Raises StoreUnreachable."""
    await client.hset(settings.keys.shard(), DRAINING, "1" if is_drained else "0")


def _said(settings: Settings) -> dict[str, str]:
    return {NAME: settings.shard, FIRST: "1" if settings.shard == settings.all_shards.first else "0"}


def _check(settings: Settings, found: Sequence[bytes | None]) -> None:
    name, first = (text_of(each or b"")[:20] for each in found)
    where = address(settings.redis_url)
    if name != settings.shard:
        named = f"TOOLFLEET_SHARDS calls it {settings.shard!r}"
        raise OtherShard(f"the Redis at {where} is the shard {name!r}, and {named}")
    if first != _said(settings)[FIRST]:
        place = "was" if first == "1" else "was not"
        raise OtherShard(
            f"the shard {name!r} at {where} {place} the first, which has the ids without a "
            "shard's name: put TOOLFLEET_SHARDS into the order that it had, with new shards behind the others"
        )
