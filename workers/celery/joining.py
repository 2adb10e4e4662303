"""Before a worker takes calls: whether those who are there already have its secret, and the server is its shard.

A server that goes away meanwhile is waited for, as it is from then on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar, cast

import redis

from toolfleet.catalog import Believer, read_live_workers
from toolfleet.connections import connect
from toolfleet.errors import StoreRefuses, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.membership import Proofs, must_be_welcome, proofs_by_name
from toolfleet.settings import Settings
from toolfleet.shard_record import must_be_its_shard
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

log = FactLog("toolfleet.workers")

T = TypeVar("T")

TRY_AGAIN_S: Final = 1.0


def once_it_answers(act: Callable[[], T]) -> T:
    """Do what needs a server that was there a moment ago, waiting while it is away. Raises what else `act` raises."""
    while True:
        try:
            return act()
        except StoreUnreachable as error:
            if not _is_away(error):
                raise
            log.warning("server_waited_for", why=str(error))
            time.sleep(TRY_AGAIN_S)


def _is_away(error: StoreUnreachable) -> bool:
    return not isinstance(error, StoreRefuses) or isinstance(error.__cause__, redis.exceptions.BusyLoadingError)


def join(settings: Settings) -> None:
    """Return when a worker with these settings may take calls. Raises OtherSecret, OtherShard, StoreUnreachable."""
    seal = Seal(settings)
    with connect(settings) as client:
        must_be_its_shard(client, settings)
        workers = read_live_workers(client, settings.keys, Believer(seal)).proofs
        members = {**workers, **_orchestrators(client, settings)}
    must_be_welcome(members, seal)


def _orchestrators(client: redis.Redis, settings: Settings) -> Proofs:
    keys = settings.keys
    found = cast("list[bytes]", client.zrange(keys.orchestrators(), 0, -1))
    names = [text_of(name) for name in found]
    if not names:
        return {}
    shown = cast("list[bytes | None]", client.mget([keys.orchestrator_proofs(name) for name in names]))
    return proofs_by_name(names, shown)
