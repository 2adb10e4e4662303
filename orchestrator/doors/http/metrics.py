"""Figures for Prometheus: what this process has counted, and what stands in Redis at the moment of asking.

What is read from Redis is the whole fleet's, and the same from each API process.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from toolfleet.calls import FailureKind
from toolfleet.catalog import Announcement
from toolfleet.metrics.exposition import exposition as as_text
from toolfleet.metrics.families import by, counted, gauge, process_families, run_families
from toolfleet.metrics.of_runs import RUNS
from toolfleet.metrics.tallies import MAX_NAMES, shown
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.fleet.queues import QueueStanding
from toolfleet.skipped import text_of

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

COLLECTED_WITHIN_S: Final = 10.0

OUTCOMES: Final = ("returned", *FailureKind)
"""As which a call may be settled: what else stands in Redis, nobody of the fleet has counted."""

EVENTS: Final = ("dead_letters", "duplicate_messages", "entries_set_aside", "forged_results", "waiting_room_failures")
"""Told as zero before they happen: of what was not there Prometheus sees no growth."""

_seen: dict[str, None] = {}
"""The queues that workers were seen to serve, or to have tools of. Kept when their last worker is gone: then it matters
most how they stand."""


class _Stored(NamedTuple):
    """What one pipeline reads."""

    runs: int
    dead: int
    orchestrators: int
    counters: Mapping[bytes, bytes]
    settled: Mapping[bytes, bytes]
    memory: Mapping[str, Any]


async def exposition(door: Door) -> bytes:
    """Return the figures as text. Raises StoreUnreachable."""
    return as_text(await families(door))


async def families(door: Door) -> list[Metric]:
    """Return the figures. Raises StoreUnreachable."""
    orchestrator = door.orchestrator
    workers = await orchestrator.catalog.workers()
    standing = await orchestrator.queues.standing(workers, named=_queues_of(workers))
    stored = await _stored(door)
    own = run_families(
        os.uname().nodename,
        working=orchestrator.working,
        adopted=orchestrator.adopted,
        dispatched=orchestrator.dispatched,
    )
    streams = gauge("toolfleet_event_streams", "Clients that events are streamed to.", len(door.streams))
    return [
        *process_families(orchestrator.ailing),
        *own,
        streams,
        *_of_fleet(stored, workers),
        *_of_queues(standing, time.time()),
    ]


def _queues_of(workers: Iterable[Announcement]) -> list[str]:
    named = (queue for worker in workers for queue in (*worker.queues, *worker.not_served.values()))
    for queue in (*named, *(sent.queue for sent in tuple(RUNS.sent.values()))):
        if len(_seen) < MAX_NAMES:
            _seen[queue] = None
    return list(_seen)


async def _stored(door: Door) -> _Stored:
    keys = door.settings.keys
    pipeline = door.client.pipeline(transaction=False)
    pipeline.zcard(keys.runs())
    pipeline.xlen(keys.dead_letters())
    pipeline.zcount(keys.orchestrators(), time.time() * 1000, "+inf")
    pipeline.hgetall(keys.counters())
    pipeline.hgetall(keys.calls_settled())
    pipeline.info("memory")
    # A key of another type was not written by the fleet; the other figures are told all the same.
    found = await pipeline.execute(raise_on_error=False)
    runs, dead, orchestrators = (each if isinstance(each, int) else 0 for each in found[:3])
    counters, settled, memory = (each if isinstance(each, dict) else {} for each in found[3:])
    return _Stored(runs, dead, orchestrators, counters, settled, memory)


def _of_fleet(stored: _Stored, workers: Sequence[Announcement]) -> list[Metric]:
    settled = {text_of(what): int(count) for what, count in stored.settled.items() if count.isdigit()}
    # HINCRBY writes nothing else than whole numbers.
    happened = {shown(text_of(what)): int(count) for what, count in stored.counters.items() if count.isdigit()}
    return [
        counted(
            "toolfleet_calls_settled",
            "Calls that ended in the whole fleet, since it began.",
            "outcome",
            {outcome: settled.get(outcome, 0) for outcome in OUTCOMES},
        ),
        gauge("toolfleet_runs_stored", "Runs whose record is kept.", stored.runs),
        gauge("toolfleet_dead_letters", "Messages that no worker could handle.", stored.dead),
        gauge("toolfleet_orchestrators", "Processes with a lease on runs.", stored.orchestrators),
        counted(
            "toolfleet_events", "Rare things that happened in the fleet.", "what", dict.fromkeys(EVENTS, 0) | happened
        ),
        by("toolfleet_workers", "Live workers.", "pool", Counter(worker.pool for worker in workers)),
        gauge("toolfleet_redis_memory_bytes", "Memory that Redis uses.", _bytes(stored.memory, "used_memory")),
        gauge("toolfleet_redis_memory_max_bytes", "What it may use; 0: no limit.", _bytes(stored.memory, "maxmemory")),
    ]


def _of_queues(standing: Sequence[QueueStanding], now_unix_s: float) -> list[Metric]:
    def each(name: str, documentation: str, values: Iterable[float]) -> Metric:
        label = "queue" if name.startswith("toolfleet") else "queue_name"
        return by(name, documentation, label, {shown(q.queue): v for q, v in zip(standing, values, strict=True)})

    ages = (0.0 if q.oldest_unix_s is None else max(0.0, now_unix_s - q.oldest_unix_s) for q in standing)
    everything = "Calls in a queue, its lanes and its waiting room, waiting and running."
    return [
        each("toolfleet_queue_length", everything, (q.unsettled for q in standing)),
        each("toolfleet_queue_waiting", "Calls that a worker could take now.", (q.waiting for q in standing)),
        each("toolfleet_queue_held_back", "Calls that wait for a limit or a turn.", (q.held_back for q in standing)),
        each("toolfleet_queue_running", "Calls with workers.", (q.running for q in standing)),
        each("toolfleet_queue_scheduled", "Calls that are to begin later.", (q.scheduled for q in standing)),
        each("toolfleet_queue_oldest_seconds", "How long the oldest waits that a worker could take.", ages),
        each("toolfleet_queue_slots", "Calls that live workers take at once.", (q.slots for q in standing)),
        each("toolfleet_queue_workers", "Live workers of a queue.", (q.workers for q in standing)),
        each("celery_queue_length", "Messages that wait in a queue.", (q.waiting + q.held_back for q in standing)),
        each("celery_active_consumer_count", "Consumers of a queue.", (q.workers for q in standing)),
        each("celery_active_worker_count", "Workers of a queue.", (q.workers for q in standing)),
        each("celery_active_process_count", "Calls that its workers take at once.", (q.slots for q in standing)),
    ]


def _bytes(memory: Mapping[str, Any], name: str) -> int:
    number = memory.get(name, 0)
    return number if isinstance(number, int) else 0
