"""Figures for Prometheus, read from Redis and this process at the moment of asking."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.skipped import skipped, text_of
from toolfleet.streams import Priority
from toolfleet.supervision import failures

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class _Snapshot:
    """Metrics that are known already, as prometheus-client wants to collect them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        return self._metrics


async def exposition(door: Door) -> bytes:
    """Return the figures as text. Raises StoreUnreachable."""
    workers = await door.orchestrator.catalog.workers()
    pools: dict[str, int] = {}
    for worker in workers:
        pools[worker.pool] = pools.get(worker.pool, 0) + 1
    queues = sorted({queue for worker in workers for queue in worker.queues})
    runs, dead, lengths, counters = await _stored(door, queues)
    registry = CollectorRegistry(auto_describe=False)
    orchestrator = door.orchestrator
    registry.register(
        _Snapshot(
            [
                GaugeMetricFamily("toolfleet_runs_stored", "Runs whose record is kept.", value=runs),
                GaugeMetricFamily("toolfleet_runs_working", "Runs that this process works on.", orchestrator.working),
                CounterMetricFamily("toolfleet_runs_adopted", "Runs taken over from others.", orchestrator.adopted),
                CounterMetricFamily(
                    "toolfleet_calls_dispatched", "Calls that this process put into queues.", orchestrator.dispatched
                ),
                GaugeMetricFamily("toolfleet_event_streams", "Clients that events are streamed to.", len(door.streams)),
                GaugeMetricFamily("toolfleet_dead_letters", "Messages that no worker could handle.", dead),
                _by("toolfleet_workers", "Live workers.", "pool", pools),
                _by(
                    "toolfleet_queue_length",
                    "Calls in a queue, its lanes and its waiting room, waiting and running.",
                    "queue",
                    lengths,
                ),
                _events(counters),
                _counted("toolfleet_records_skipped", "Records in Redis that this process could not read.", skipped()),
                _counted("toolfleet_task_failures", "Failures of this process's own tasks and threads.", failures()),
            ]
        )
    )
    return generate_latest(registry)


async def _stored(door: Door, queues: list[str]) -> tuple[int, int, dict[str, int], Mapping[bytes, bytes]]:
    keys = door.settings.keys
    pipeline = door.client.pipeline(transaction=False)
    pipeline.zcard(keys.runs())
    pipeline.xlen(keys.dead_letters())
    for queue in queues:
        for priority in Priority:
            pipeline.xlen(keys.queue(queue, priority))
        pipeline.hlen(keys.room_calls(queue))
        pipeline.smembers(keys.lanes(queue))
    runs, dead, *found = await pipeline.execute()
    size = len(Priority) + 2
    by_queue = {queue: found[size * n : size * (n + 1)] for n, queue in enumerate(queues)}
    lengths = {queue: sum(counts) + await _in_lanes(door, lanes) for queue, (*counts, lanes) in by_queue.items()}
    counters = await cast("Awaitable[Mapping[bytes, bytes]]", door.client.hgetall(keys.counters()))
    return runs, dead, lengths, counters


async def _in_lanes(door: Door, lanes: Iterable[bytes]) -> int:
    pipeline = door.client.pipeline(transaction=False)
    for lane in lanes:
        for priority in Priority:
            pipeline.xlen(door.settings.keys.queue(text_of(lane), priority))
    return sum(await pipeline.execute())


def _by(name: str, documentation: str, label: str, values: Mapping[str, int]) -> Metric:
    metric = GaugeMetricFamily(name, documentation, labels=[label])
    for value, count in values.items():
        metric.add_metric([value], count)
    return metric


def _events(counters: Mapping[bytes, bytes]) -> Metric:
    # HINCRBY writes nothing else than whole numbers.
    counts = {text_of(what): int(count) for what, count in counters.items() if count.isdigit()}
    return _counted("toolfleet_events", "Rare things that happened in the fleet.", counts)


def _counted(name: str, documentation: str, counts: Mapping[str, int]) -> Metric:
    metric = CounterMetricFamily(name, documentation, labels=["what"])
    for what, count in sorted(counts.items()):
        metric.add_metric([what], float(count))
    return metric
