"""The Celery app of the workers in these tests. Each start is written down in Redis, where the tests wait for it."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

import toolfleet.streams  # noqa: F401  # makes the URL schemes known
from tests.streams.harness import OPTIONS

app = Celery("tests", broker=os.environ["BROKER_URL"])
app.conf.update(
    accept_content=["json"],
    broker_transport_options=OPTIONS,
    broker_channel_error_retry=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue="io",
    task_create_missing_queues=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
)


def server() -> redis.Redis:
    return redis.Redis(unix_socket_path=os.environ["BROKER_URL"].partition("://")[2], protocol=2)


def note(event: str, task_id: str) -> None:
    with server() as client:
        client.rpush(event, task_id)


@app.task(bind=True, name="tests.noop")
def noop(self, *_: object) -> None:
    note("started", self.request.id)


@app.task(bind=True, name="tests.hold")
def hold(self) -> None:
    """Run until the test says go, or half a minute."""
    note("started", self.request.id)
    with server() as client:
        client.blpop("go", timeout=30)
    note("ended", self.request.id)


@app.task(bind=True, name="tests.hold_the_interpreter_lock")
def hold_the_interpreter_lock(self, seconds: float) -> None:
    """One call into C that gives the lock to nobody for about so long."""
    note("started", self.request.id)
    begun = time.monotonic()
    sum(range(3_000_000))
    sum(range(round(3_000_000 * seconds / (time.monotonic() - begun))))
    note("ended", self.request.id)


@app.task(bind=True, name="tests.spin")
def spin(self, seconds: float) -> None:
    """Pure Python without a pause."""
    note("started", self.request.id)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    note("ended", self.request.id)
