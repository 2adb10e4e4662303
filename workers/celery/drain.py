"""The end of a worker that was asked to stop: calls may end for the grace period, while the broker is still connected.

A step of Celery's consumer blueprint. Celery itself closes the connection first, and waits for its processes for ever;
what is to be handed back could not be said any more.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import Any

from celery import bootsteps
from celery.worker import state
from kombu.common import ignore_errors

from toolfleet.logs import FactLog
from toolfleet.workers.celery.request import pool_kills
from toolfleet.workers.tool import child_processes as family

log = FactLog("toolfleet.workers")


class LetCallsEnd(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """A worker that stops takes no new calls, and lets running ones end within the grace period."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def stop(self, consumer: Any) -> None:
        """Let calls end when the worker stops. A lost connection, at which Celery stops its steps too, ends none."""
        if consumer.blueprint.state != bootsteps.CLOSE:
            return
        if consumer.task_consumer:
            ignore_errors(consumer, consumer.task_consumer.cancel)
        # watched: it has only this to do, and what it raises is on standard error
        killer = threading.Timer(
            consumer.app.toolfleet.settings.shutdown_grace_s, _kill_busy_processes, [consumer.pool]
        )
        killer.daemon = True
        killer.start()
        try:
            consumer.pool.stop()
        finally:
            killer.cancel()


def _kill_busy_processes(pool: Any) -> None:
    """Kill the processes still at a call after the grace period. Their calls are treated as those of a lost worker."""
    if not pool_kills(pool):
        return  # the asyncio pool keeps the grace itself, threads cannot be ended
    for request in tuple(state.active_requests):
        log.info("killed_at_shutdown", call_id=request.id, tool=request.name)
        started_by_tool = family.descendants(request.worker_pid)
        with suppress(ProcessLookupError):
            os.kill(request.worker_pid, signal.SIGKILL)
        family.kill(started_by_tool)
