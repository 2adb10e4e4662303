"""Before a worker takes calls: whether those who are there already have its secret. Reads Redis, changes nothing."""

from __future__ import annotations

from typing import cast

import orjson
import redis

from toolfleet.catalog import Announcement
from toolfleet.connections import connect
from toolfleet.keys import ANNOUNCEMENT_TTL_S
from toolfleet.membership import Proofs, must_be_welcome
from toolfleet.settings import Settings
from toolfleet.wire import Seal


def join(settings: Settings) -> None:
    """Return when a worker with these settings may take calls. Raises OtherSecret, StoreUnreachable."""
    with connect(settings) as client:
        members = {**_workers(client, settings), **_orchestrators(client, settings)}
    must_be_welcome(members, Seal(settings))


def _workers(client: redis.Redis, settings: Settings) -> Proofs:
    keys = settings.keys
    server_unix_s, _ = client.time()
    names = cast("list[bytes]", client.zrangebyscore(keys.workers(), server_unix_s - ANNOUNCEMENT_TTL_S, "+inf"))
    workers = [
        Announcement.model_validate_json(text)
        for text in _texts(client, [keys.worker(name.decode()) for name in names])
        if text is not None
    ]
    return {worker.worker: worker.proofs for worker in workers}


def _orchestrators(client: redis.Redis, settings: Settings) -> Proofs:
    keys = settings.keys
    names = [name.decode() for name in cast("list[bytes]", client.zrange(keys.orchestrators(), 0, -1))]
    shown = _texts(client, [keys.orchestrator_proofs(name) for name in names])
    return {name: tuple(orjson.loads(proofs)) for name, proofs in zip(names, shown, strict=True) if proofs is not None}


def _texts(client: redis.Redis, keys: list[str]) -> list[bytes | None]:
    return cast("list[bytes | None]", client.mget(keys)) if keys else []
