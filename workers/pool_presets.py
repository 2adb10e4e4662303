"""The pools by name: what kind of Celery pool serves each queue, and how many calls at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

from toolfleet.errors import InvalidSettings

ASYNCIO: Final = "toolfleet.workers.celery.pool:AsyncioPool"
PREFORK: Final = "toolfleet.workers.celery.processes:ProcessPool"

KINDS: Final = {"asyncio": ASYNCIO, "prefork": PREFORK, "threads": "threads", "solo": "solo"}


@dataclass(frozen=True, slots=True)
class Pool:
    """How a worker runs calls. Prefetching no more than it can start keeps short calls from queueing behind long."""

    implementation: str
    concurrency: int
    prefetch_multiplier: int = 1


POOLS: Final = {
    "io": Pool(ASYNCIO, concurrency=1000),
    "cpu": Pool(PREFORK, concurrency=os.cpu_count() or 2),
    # A process per long job: it can be killed, and its leak ends with it.
    "long": Pool(PREFORK, concurrency=4),
}


def pool_for(name: str, *, kind: str | None, concurrency: int | None) -> Pool:
    """Return the pool of a name (a queue of the user's own is served like `io`), with what was asked for otherwise."""
    pool = POOLS.get(name, POOLS["io"])
    if kind is not None:
        if kind not in KINDS:
            raise InvalidSettings(f"unknown kind of pool {kind!r}; there are {', '.join(KINDS)}")
        pool = replace(pool, implementation=KINDS[kind])
    return pool if concurrency is None else replace(pool, concurrency=concurrency)
