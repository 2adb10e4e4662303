"""The pools by name: what kind of Celery pool serves each queue, and how many calls at a time."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from toolfleet.errors import InvalidSettings

ASYNCIO: Final = "toolfleet.workers.celery.pool:AsyncioPool"
PREFORK: Final = "toolfleet.workers.celery.processes:ProcessPool"
THREADS: Final = "toolfleet.workers.celery.thread_pool:ThreadPool"

KINDS: Final = {"asyncio": ASYNCIO, "prefork": PREFORK, "threads": THREADS, "solo": "solo"}


@dataclass(frozen=True, slots=True)
class Pool:
    """How a worker runs calls. Prefetching no more than it can start keeps short calls from queueing behind long."""

    implementation: str
    concurrency: int
    prefetch_multiplier: int = 1
    max_tasks_per_child: int | None = None
    """After so many calls another process takes over; None: after any number."""
    max_memory_per_child: int | None = None
    """Another process takes over from one that holds more than so many KiB after a call."""


POOLS: Final = {
    "io": Pool(ASYNCIO, concurrency=1000),
    "cpu": Pool(PREFORK, concurrency=os.cpu_count() or 2),
    # A process per long job: it can be killed.
    "long": Pool(PREFORK, concurrency=4),
}


def pool_for(
    name: str,
    *,
    kind: str | None,
    concurrency: int | None,
    in_processes: Collection[str] = (),
    max_tasks_per_child: int | None = None,
    max_memory_per_child: int | None = None,
) -> Pool:
    """Return the pool of a name, with what was asked for otherwise. Raises InvalidSettings.

    A queue of the user's own is served like `io` or, where tools of it are for processes (`in_processes`), like `cpu`.
    """
    pool = POOLS.get(name, POOLS["cpu"] if in_processes else POOLS["io"])
    if kind is not None:
        if kind not in KINDS:
            raise InvalidSettings(f"unknown kind of pool {kind!r}; there are {', '.join(KINDS)}")
        pool = replace(pool, implementation=KINDS[kind])
    if in_processes and pool.implementation != PREFORK:
        raise InvalidSettings(
            f'{", ".join(sorted(in_processes))} must run in a process (blocking="process"), and this worker would run '
            "it on a thread: serve its queue by a worker of its own, with --kind prefork"
        )
    if (max_tasks_per_child or max_memory_per_child) and pool.implementation != PREFORK:
        raise InvalidSettings(
            "--max-tasks-per-child and --max-memory-per-child are for processes, and this worker has none for calls: "
            "add --kind prefork, or leave them out"
        )
    return replace(
        pool,
        concurrency=pool.concurrency if concurrency is None else concurrency,
        max_tasks_per_child=max_tasks_per_child,
        max_memory_per_child=max_memory_per_child,
    )
