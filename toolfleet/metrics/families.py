"""What this process has counted, as prometheus-client's metric families. Needs the extra `metrics`, or `serve`.

Labels are names that an operator has chosen: tools, models, queues, machines. No tenant, no id, no text of anybody's.
The names that begin with `celery_` are those of celery-exporter, whose dashboards then show this fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from toolfleet.metrics.of_calls import CALLS, CallFigures
from toolfleet.metrics.of_runs import RUNS, RunFigures
from toolfleet.metrics.tallies import Histogram
from toolfleet.skipped import skipped
from toolfleet.supervision import failures

_OF_TASK: Final = ("name", "hostname", "queue_name")

_CELERYS: Final = {
    "succeeded": ("settled",),
    "failed": ("failed", "buried"),
    "revoked": ("cancelled",),
    "rejected": ("handed_back", "left_open", "not_performed"),
    "retried": ("passed_on",),
}
"""As which of Celery's events each way to end counts."""


def process_families(ailing: Mapping[str, str]) -> list[Metric]:
    """What every process tells: what it could not read, what of its own has failed, and whether it hears."""
    return [
        gauge("toolfleet_listeners_down", "Listeners of this process that are down at the moment.", len(ailing)),
        counted("toolfleet_records_skipped", "Records in Redis that this process could not read.", "what", skipped()),
        counted("toolfleet_task_failures", "Failures of this process's own tasks and threads.", "what", failures()),
    ]


def call_families(figures: CallFigures = CALLS) -> list[Metric]:
    """What a worker tells of calls, in our names and in those of celery-exporter."""
    tools = figures.by_tool.told()
    ended = CounterMetricFamily(
        "toolfleet_deliveries_ended", "Deliveries that ended on this worker.", labels=["tool", "ending"]
    )
    for tool, each in tools:
        for ending, count in tuple(each.endings.items()):
            ended.add_metric([tool, str(ending)], count)
    received = {tool: each.received for tool, each in tools}
    started = {tool: each.started for tool, each in tools}
    waited = "From a call's entry into its queue until this worker had it."
    ran = [((tool,), each.ran) for tool, each in tools]
    return [
        counted("toolfleet_calls_received", "Calls that this worker was given.", "tool", received),
        counted("toolfleet_calls_started", "Calls that began on this worker.", "tool", started),
        ended,
        histogram("toolfleet_call_queue_seconds", waited, (), [((), figures.waited)]),
        histogram("toolfleet_call_run_seconds", "How long tools ran.", ("tool",), ran),
        histogram("toolfleet_call_settle_seconds", "From a result until Redis had it.", (), [((), figures.settled)]),
        counted(
            "toolfleet_tools_changed",
            "Tools that came or went while this worker served.",
            "change",
            figures.tools_changed,
        ),
        gauge("toolfleet_worker_slots", "Calls that this worker takes at once.", figures.slots),
        gauge("toolfleet_worker_calls_running", "Calls that run on this worker.", figures.active()),
        *_as_celery_exporter(figures),
    ]


def _as_celery_exporter(figures: CallFigures) -> list[Metric]:
    host = figures.worker.rpartition("@")[2]
    tasks = [((tool, host, each.queue), each) for tool, each in figures.by_tool.told()]
    found = [
        tasks_counted("received", {labels: each.received for labels, each in tasks}),
        tasks_counted("started", {labels: each.started for labels, each in tasks}),
    ]
    for event, endings in _CELERYS.items():
        counts = {labels: sum(each.endings[ending] for ending in endings) for labels, each in tasks}
        found.append(_failed(counts) if event == "failed" else tasks_counted(event, counts))
    ran = [(labels, each.ran) for labels, each in tasks]
    return [
        *found,
        histogram("celery_task_runtime", "Histogram of task runtime measurements.", _OF_TASK, ran),
        by("celery_worker_up", "This worker is there.", "hostname", {host: 1}),
        by("celery_worker_tasks_active", "Tasks that this worker runs.", "hostname", {host: figures.active()}),
    ]


def _failed(counts: Mapping[tuple[str, str, str], int]) -> Metric:
    family = CounterMetricFamily(
        "celery_task_failed", "Tasks that failed.", labels=["name", "hostname", "exception", "queue_name"]
    )
    for (name, host, queue), count in counts.items():
        family.add_metric([name, host, "Failed", queue], count)
    return family


def run_families(host: str, *, working: int, adopted: int, dispatched: int, figures: RunFigures = RUNS) -> list[Metric]:
    """What a process tells that works on runs."""
    models = figures.by_model.told()
    replies = CounterMetricFamily("toolfleet_model_replies", "Replies of models.", labels=["model", "outcome"])
    tokens = CounterMetricFamily("toolfleet_model_tokens", "Tokens, as models count them.", labels=["model", "type"])
    for model, each in models:
        replies.add_metric([model, "complete"], each.replied)
        replies.add_metric([model, "failed"], each.failed)
        tokens.add_metric([model, "input"], each.input_tokens)
        tokens.add_metric([model, "output"], each.output_tokens)
    took = [((model,), each.took) for model, each in models]
    sent = {(tool, host, each.queue): each.calls for tool, each in figures.sent.told()}
    turn = "From the moment that a model is asked until its calls are back, or it has answered."
    taken_back = "Versions of tools that were taken back from new runs, because they failed too often."
    refused = "Replies that a budget did not allow, or allowed as the last ones."
    return [
        gauge("toolfleet_runs_working", "Runs that this process works on.", working),
        CounterMetricFamily("toolfleet_runs_adopted", "Runs taken over from others.", adopted),
        CounterMetricFamily("toolfleet_calls_dispatched", "Calls that this process put into queues.", dispatched),
        counted("toolfleet_runs_ended", "Runs that this process brought to their end.", "state", figures.ended),
        CounterMetricFamily("toolfleet_budget_refusals", refused, figures.budget_refusals),
        CounterMetricFamily("toolfleet_versions_taken_back", taken_back, figures.versions_taken_back),
        histogram("toolfleet_turn_seconds", turn, (), [((), figures.turns)]),
        histogram("toolfleet_model_reply_seconds", "How long whole replies took.", ("model",), took),
        replies,
        tokens,
        tasks_counted("sent", sent),
    ]


def gauge(name: str, documentation: str, value: float) -> Metric:
    """One number as it is now."""
    return GaugeMetricFamily(name, documentation, value=value)


def by(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Metric:
    """Numbers as they are now, by one label."""
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def counted(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> Metric:
    """What only grows, by one label. `_total` is added to the name."""
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([str(value)], count)
    return family


def tasks_counted(event: str, counts: Mapping[tuple[str, str, str], int]) -> Metric:
    """A counter of celery-exporter's, by tool, machine and queue."""
    family = CounterMetricFamily(f"celery_task_{event}", f"Tasks {event}.", labels=_OF_TASK)
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


def histogram(
    name: str, documentation: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], Histogram]]
) -> Metric:
    """Histograms by their labels."""
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for of, each in values:
        family.add_metric(of, each.buckets(), each.sum)
    return family


class Snapshot:
    """Metrics that are known already, as prometheus-client wants to collect them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        return self._metrics
