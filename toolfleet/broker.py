"""The Celery application that both halves are built on: where the broker is and which rules hold on the way.

Knows Celery's settings and nothing of tools, models or turns.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from celery import Celery
from kombu import Connection, Queue

from toolfleet.remote_control import SignedControl
from toolfleet.settings import Settings
from toolfleet.streams import check_broker_url, transport_options
from toolfleet.wire import Seal

DEFAULT_QUEUES: Final = ("io", "cpu", "long")


RETRY_EVERY_S: Final = {"interval_start": 0.1, "interval_step": 0.3, "interval_max": 1.0}
"""Pauses between attempts to reach a broker that is away: kombu's own, 2 to 30 s, are time lost after its return."""


class EagerConnection(Connection):  # type: ignore[misc]  # kombu ships no types
    """A connection that is there again within a second of its broker."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """As kombu's, with our pauses."""
        return super().ensure_connection(*args, **(RETRY_EVERY_S | kwargs))


def celery_app(settings: Settings) -> Celery:
    """Return a Celery app for this fleet, with no tasks yet. Nothing is connected until it is used."""
    app = Celery("toolfleet", broker=check_broker_url(settings.celery_broker_url), set_as_current=False)
    app.conf.update(_rules(settings))
    app.amqp.Connection = EagerConnection
    app.control_cls = partial(SignedControl, seal=Seal(settings), fleet=settings.namespace)
    return app


def tool_queue(name: str) -> Queue:
    """Return a queue reached by its own name, without an exchange of ours in between."""
    return Queue(name, exchange="", routing_key=name)


def _rules(settings: Settings) -> dict[str, Any]:
    return {
        # Only JSON is ever read: a pickle would run code of whoever can reach the broker.
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_create_missing_queues": True,
        "task_queues": [tool_queue(name) for name in DEFAULT_QUEUES],
        # Results travel by our own reply streams; a result backend would be a second truth.
        "task_ignore_result": True,
        "result_backend": None,
        # A call is acknowledged by its result.
        "task_acks_late": True,
        "task_acks_on_failure_or_timeout": True,
        "task_reject_on_worker_lost": True,
        # Losing the broker for a moment must not end, cancel or repeat what is running.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_prefetch_count_reduction": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "broker_pool_limit": 4,
        "broker_transport_options": transport_options(settings),
        # Workers are told apart by their leases; asking all others at start would cost a second.
        "worker_hijack_root_logger": False,
        "worker_disable_rate_limits": True,
        "worker_prefetch_multiplier": 1,
        "enable_utc": True,
    }
