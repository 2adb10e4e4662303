"""Before a worker takes calls: whether those who are there already have its secret. Reads Redis, changes nothing."""

from __future__ import annotations

from typing import cast

import redis

from toolfleet.catalog import read_live_workers
from toolfleet.connections import connect
from toolfleet.membership import Proofs, must_be_welcome, read_proofs
from toolfleet.settings import Settings
from toolfleet.wire import Seal


def join(settings: Settings) -> None:
    """Return when a worker with these settings may take calls. Raises OtherSecret, StoreUnreachable."""
    with connect(settings) as client:
        members = {**_workers(client, settings), **_orchestrators(client, settings)}
    must_be_welcome(members, Seal(settings))


def _workers(client: redis.Redis, settings: Settings) -> Proofs:
    return {worker.worker: worker.proofs for worker in read_live_workers(client, settings.keys)}


def _orchestrators(client: redis.Redis, settings: Settings) -> Proofs:
    keys = settings.keys
    found = cast("list[bytes]", client.zrange(keys.orchestrators(), 0, -1))
    names = [name.decode(errors="replace") for name in found]
    if not names:
        return {}
    shown = cast("list[bytes | None]", client.mget([keys.orchestrator_proofs(name) for name in names]))
    read = {name: read_proofs(proofs) for name, proofs in zip(names, shown, strict=True) if proofs is not None}
    return {name: proofs for name, proofs in read.items() if proofs}
