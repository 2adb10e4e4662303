"""How queues stand: what waits, what is held back by limits, what runs, how long the oldest has waited, who takes it.

Reads only, for people and autoscalers. Counted from the streams themselves: an entry is there until its call is
settled, so what waits and what runs add up, in whatever order calls end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.catalog import Announcement
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP, RETURNED, Priority
from toolfleet.waiting.standing import ask_how_many_wait, how_many_wait

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


class Measured(NamedTuple):
    """What the script tells of one stream."""

    free: int
    held: int
    oldest_ms: int
    holders: Sequence[tuple[bytes, int]]
    """Each process that holds some, by its name as a consumer, with how many."""


class QueuesNow(NamedTuple):
    """How queues stand at one moment, and who holds what of them."""

    queues: list[QueueStanding]
    held: Mapping[str, int]
    """How many calls each process holds, by its name as a consumer."""


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
        return (await self.now(workers, named=named)).queues

    async def now(self, workers: Iterable[Announcement], *, named: Iterable[str] = ()) -> QueuesNow:
        """Return the same, and how many calls each process holds. Raises StoreUnreachable."""
        served = list(workers)
        queues = sorted({*named, *(queue for worker in served for queue in worker.queues)})
        if not self._has_streams:
            return QueuesNow([_served(queue, served) for queue in queues], {})
        beside = await self._beside(queues)
        parts = {queue: [queue, *lanes] for queue, (_, _, lanes) in beside.items()}
        streams = [(queue, part, level) for queue in queues for part in parts[queue] for level in Priority]
        measured = await self._measured([self._keys.queue(part, level) for _, part, level in streams])
        by_queue: dict[str, list[tuple[Priority, Measured]]] = {queue: [] for queue in queues}
        held: Counter[str] = Counter()
        for (queue, _, level), stream in zip(streams, measured, strict=True):
            by_queue[queue].append((level, stream))
            held.update({text_of(name): number for name, number in stream.holders})
        standing = [_standing(_served(queue, served), by_queue[queue], *beside[queue][:2]) for queue in queues]
        return QueuesNow(standing, held)

    async def _beside(self, queues: Sequence[str]) -> dict[str, tuple[int, int, list[str]]]:
        """Return what stands beside each queue's streams: how much is held back and scheduled, and its lanes."""
        pipeline = self._client.pipeline(transaction=False)
        for queue in queues:
            ask_how_many_wait(pipeline, self._keys, queue)
            pipeline.zcard(self._keys.scheduled(queue))
            pipeline.smembers(self._keys.lanes(queue))
        found = await pipeline.execute() if queues else []
        return {
            queue: (how_many_wait(found[at : at + 2]), found[at + 2], sorted(map(text_of, found[at + 3])))
            for at, queue in zip(range(0, len(found), 4), queues, strict=True)
        }

    async def _measured(self, streams: Sequence[str]) -> list[Measured]:
        if not streams:
            return []
        found = cast("list[Sequence[Any]]", await self._measure(keys=list(streams), args=[GROUP, RETURNED]))
        return [Measured(*each) for each in found]


def _served(queue: str, workers: Sequence[Announcement]) -> QueueStanding:
    ours = [worker for worker in workers if queue in worker.queues]
    return QueueStanding(queue=queue, slots=sum(worker.concurrency for worker in ours), workers=len(ours))


def _standing(
    served: QueueStanding, measured: Iterable[tuple[Priority, Measured]], held_back: int, scheduled: int
) -> QueueStanding:
    waiting = dict.fromkeys(Priority, 0)
    running, oldest = 0, []
    for level, stream in measured:
        waiting[level] += stream.free
        running += stream.held
        oldest += [stream.oldest_ms] if stream.oldest_ms else []
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
