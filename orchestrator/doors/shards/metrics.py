"""Figures for Prometheus of one application, or of that of all shards: then each figure says of which shard it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from prometheus_client.core import Metric

from toolfleet.orchestrator.doors.http.metrics import COLLECTED_WITHIN_S, families
from toolfleet.orchestrator.doors.shards.app import ShardedApi

LABEL = "shard"


def metrics_of(app: FastAPI | ShardedApi, loop: asyncio.AbstractEventLoop) -> Callable[[], list[Metric]]:
    """Return a function that has them collected on this loop, for threads. Raises StoreUnreachable, TimeoutError."""

    def collect() -> list[Metric]:
        collecting = _of_shards(app) if isinstance(app, ShardedApi) else families(app.state.door)
        return asyncio.run_coroutine_threadsafe(collecting, loop).result(COLLECTED_WITHIN_S)

    return collect


async def _of_shards(app: ShardedApi) -> list[Metric]:
    """Return the figures of those shards that can be asked."""
    told, _ = await app.members.each(lambda api: families(api.door))
    together: dict[str, Metric] = {}
    for shard, metrics in told.items():
        for metric in metrics:
            labelled = [sample._replace(labels={**sample.labels, LABEL: shard}) for sample in metric.samples]
            known = together.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            known.samples += labelled
    return list(together.values())
