"""What a worker over HTTPS counts of its calls, in the figures of any worker, and where Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.metrics.exposition import serve_metrics
from toolfleet.metrics.of_calls import CALLS
from toolfleet.settings import Settings
from toolfleet.workers.perform.endings import Ending

if TYPE_CHECKING:
    from prometheus_client.core import Metric

QUEUE = "https"
"""Under which queue they stand: which one it is, the API knows."""


def serve_figures(
    settings: Settings, worker: str, tools: Iterable[str], *, slots: int, running: Callable[[], int]
) -> None:
    """Answer Prometheus, if the settings name a port. Raises ExtraMissing."""
    CALLS.worker, CALLS.slots, CALLS.active = worker, slots, running
    for tool in tools:
        CALLS.by_tool[tool].queue = QUEUE
    serve_metrics(settings, _collect)


def count_begun(tool: str) -> None:
    """Count a call that was acknowledged, and begins."""
    CALLS.begun(tool, "", 0.0, is_new=False)


def ending_of(result: Returned | Failed) -> Ending:
    """Return as what a settled call counts."""
    if isinstance(result, Returned):
        return Ending.SETTLED
    return Ending.CANCELLED if result.kind is FailureKind.CANCELLED else Ending.FAILED


def _collect() -> list[Metric]:
    from toolfleet.metrics.families import call_families, process_families  # noqa: PLC0415  # an extra

    return [*process_families({}), *call_families()]
