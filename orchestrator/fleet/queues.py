"""How queues stand: what waits, what is held back by limits, what runs, how long the oldest has waited, who takes it.

Reads only, for people and autoscalers. Counted from the streams themselves: an entry is there until its call is
settled, so what waits and what runs add up, in whatever order calls end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.catalog import Announcement
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP, RETURNED, Priority

MEASURE: Final = lua(__package__, "measure")

WORDS: Final = {Priority.INTERACTIVE: "interactive", Priority.NORMAL: "normal", Priority.BATCH: "batch"}


class QueueStanding(Record):
    """How one queue stands, its lanes included."""

    queue: str
    waiting: int = 0
    """Calls that a worker could take now."""
    held_back: int = 0
    """Calls that wait for a limit, or for their tenant's turn."""
    running: int = 0
    """Calls with workers. Some of them may wait there for a slot."""
    unsettled: int = 0
    """All of these: by this number workers are added and taken away."""
    scheduled: int = 0
    """Calls that are to begin later: a retry after a pause, for example."""
    oldest_unix_s: float | None = None
    """When the oldest came of those that a worker could take now; None where none waits."""
    slots: int = 0
    """How many calls its live workers take at once."""
    workers: int = 0
    waiting_by_priority: Mapping[str, int] = {}


class Queues:
    """Tells how queues stand, where calls go over streams of ours; of another broker it knows the workers only."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = settings.keys
        self._has_streams = not settings.broker_url
        self._measure = client.register_script(MEASURE)

    async def standing(self, workers: Iterable[Announcement], *, named: Iterable[str] = ()) -> list[QueueStanding]:
        """Return how the queues of these workers stand, and those that are named. Raises StoreUnreachable.

        A queue that nobody has ever used stands at zero.
        """
        served = list(workers)
        queues = sorted({*named, *(queue for worker in served for queue in worker.queues)})
        if not self._has_streams:
            return [_served(queue, served) for queue in queues]
        beside = await self._beside(queues)
        parts = {queue: [queue, *lanes] for queue, (_, _, lanes) in beside.items()}
        streams = [(queue, part, level) for queue in queues for part in parts[queue] for level in Priority]
        measured = await self._measured([self._keys.queue(part, level) for _, part, level in streams])
        by_queue: dict[str, list[tuple[Priority, Sequence[int]]]] = {queue: [] for queue in queues}
        for (queue, _, level), numbers in zip(streams, measured, strict=True):
            by_queue[queue].append((level, numbers))
        return [_standing(_served(queue, served), by_queue[queue], *beside[queue][:2]) for queue in queues]

    async def _beside(self, queues: Sequence[str]) -> dict[str, tuple[int, int, list[str]]]:
        """Return what stands beside each queue's streams: how much is held back and scheduled, and its lanes."""
        pipeline = self._client.pipeline(transaction=False)
        for queue in queues:
            pipeline.hlen(self._keys.room_calls(queue))
            pipeline.zcard(self._keys.scheduled(queue))
            pipeline.smembers(self._keys.lanes(queue))
        found = await pipeline.execute() if queues else []
        return {
            queue: (found[3 * n], found[3 * n + 1], sorted(map(text_of, found[3 * n + 2])))
            for n, queue in enumerate(queues)
        }

    async def _measured(self, streams: Sequence[str]) -> list[Sequence[int]]:
        if not streams:
            return []
        return cast("list[Sequence[int]]", await self._measure(keys=list(streams), args=[GROUP, RETURNED]))


def _served(queue: str, workers: Sequence[Announcement]) -> QueueStanding:
    ours = [worker for worker in workers if queue in worker.queues]
    return QueueStanding(queue=queue, slots=sum(worker.concurrency for worker in ours), workers=len(ours))


def _standing(
    served: QueueStanding, measured: Iterable[tuple[Priority, Sequence[int]]], held_back: int, scheduled: int
) -> QueueStanding:
    waiting = dict.fromkeys(Priority, 0)
    running, oldest = 0, []
    for level, (free, held, oldest_ms) in measured:
        waiting[level] += free
        running += held
        oldest += [oldest_ms] if oldest_ms else []
    return served.model_copy(
        update={
            "waiting": sum(waiting.values()),
            "held_back": held_back,
            "running": running,
            "unsettled": sum(waiting.values()) + held_back + running,
            "scheduled": scheduled,
            "oldest_unix_s": min(oldest) / 1000 if oldest else None,
            "waiting_by_priority": {WORDS[level]: number for level, number in waiting.items()},
        }
    )
