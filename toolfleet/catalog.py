"""What a worker announces of itself: the record both halves read, in Redis for as long as the worker lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.keys import ANNOUNCEMENT_TTL_S, Keys
from toolfleet.tool import ToolSpec

BUILT_IN_NAMES: Final = frozenset({"task_result", "task_cancel", "read_result", "search_tools"})
"""Names that no tool of a worker may have: orchestrators answer to them themselves, about other calls and tools."""


class Announcement(Record):
    """One live worker and the tools it serves."""

    v: Literal[1] = 1
    worker: str
    pid: int
    pool: str
    concurrency: int
    queues: tuple[str, ...]
    started_unix_s: float
    tools: tuple[ToolSpec, ...]
    proofs: tuple[str, ...] = ()
    """What shows that it has the fleet's secret, see `Seal.proofs`."""
    sources: Mapping[str, str] = {}
    """Where each tool that the worker has loaded was declared, as `module:qualname`."""
    lanes: Mapping[str, str] = {}
    """For each queue the lane that the worker reads as well, if the broker has lanes."""
    not_served: Mapping[str, str] = {}
    """Tools that the worker has loaded and does not serve, because it does not consume their queue; and that queue."""


class LiveWorkers:
    """Reads the announcements of live workers. One that has not changed is parsed once."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._parsed: dict[bytes, Announcement] = {}

    async def read(self) -> list[Announcement]:
        """Every live worker, by name. Raises StoreUnreachable."""
        server_unix_s, _ = await self._client.time()
        oldest = server_unix_s - ANNOUNCEMENT_TTL_S
        names = cast("list[bytes]", await self._client.zrangebyscore(self._keys.workers(), oldest, "+inf"))
        if not names:
            return []
        keys = [self._keys.worker(name.decode()) for name in sorted(names)]
        texts = cast("list[bytes | None]", await self._client.mget(keys))
        self._parsed = {
            text: self._parsed.get(text) or Announcement.model_validate_json(text) for text in texts if text is not None
        }
        return list(self._parsed.values())


def read_live_workers(client: redis.Redis, keys: Keys) -> list[Announcement]:
    """Return every live worker, by name, for callers without an event loop. Raises StoreUnreachable."""
    server_unix_s, _ = client.time()
    names = cast("list[bytes]", client.zrangebyscore(keys.workers(), server_unix_s - ANNOUNCEMENT_TTL_S, "+inf"))
    if not names:
        return []
    texts = cast("list[bytes | None]", client.mget([keys.worker(name.decode()) for name in sorted(names)]))
    return [Announcement.model_validate_json(text) for text in texts if text is not None]


def offered_by(workers: Iterable[Announcement]) -> dict[str, ToolSpec]:
    """Return the tools to offer to models: all that are served, as the worker that was started last declares them."""
    by_age = sorted(workers, key=lambda worker: (worker.started_unix_s, worker.worker))
    return {spec.name: spec for worker in by_age for spec in worker.tools}


def nobody_serves(tool: str, workers: Sequence[Announcement]) -> str:
    """Return why a tool that a live worker has loaded is not served, and the remedy; "" if none has loaded it."""
    for worker in workers:
        queue = worker.not_served.get(tool)
        if queue is not None:
            start = command(queue, [worker.sources.get(tool, "").partition(":")[0]])
            return f"{tool} is on queue {queue}, which no live worker with it consumes: start one with {start}"
    return ""


def command(queue: str, modules: Iterable[str]) -> str:
    """Return the command that starts a worker of a queue with these modules."""
    return f"`toolfleet worker --pool {queue} {' '.join(f'--import {module}' for module in modules)}`"
