"""The step of Celery's worker blueprint by which Prometheus reads what a worker has counted, if a port is set for it.

Child processes of a pool are counted here, in their parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.worker import state

from toolfleet.metrics.exposition import serve_metrics
from toolfleet.metrics.of_calls import CALLS
from toolfleet.workers.celery.pool import AsyncioPool

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class ServeMetrics(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Begins to answer once the pool is there, so that its first children have nothing of it."""

    requires = ("celery.worker.components:Pool",)

    def start(self, worker: Any) -> None:
        """Tell the figures who they are about, and answer whoever asks for them."""
        fleet, pool = worker.app.toolfleet, worker.pool
        CALLS.worker, CALLS.slots = worker.hostname, pool.num_processes
        CALLS.ailing = lambda: fleet.supervisor.ailing
        CALLS.active = (lambda: pool.running) if isinstance(pool, AsyncioPool) else (lambda: len(state.active_requests))
        for name, tool in fleet.tools.items():
            CALLS.by_tool[name].queue = tool.spec.queue
        serve_metrics(fleet.settings, _collect)


def _collect() -> list[Metric]:
    from toolfleet.metrics.families import call_families, process_families  # noqa: PLC0415  # an extra

    return [*process_families(CALLS.ailing()), *call_families()]
