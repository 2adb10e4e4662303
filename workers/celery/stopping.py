"""The end of a worker that was asked to stop: it reads no more, what runs may end, and what does not is handed back.

A step of Celery's consumer blueprint, as the broker must still be connected: Celery itself closes that connection
first, and waits for its processes for ever. The grace is over when its time has passed, at a second signal, or with the
last call; ten seconds later there is no such process any more, whatever its tools or its broker do.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from celery import bootsteps
from celery.signals import worker_shutdown, worker_shutting_down
from celery.worker import state
from kombu.common import ignore_errors

from toolfleet.exit_status import ExitStatus
from toolfleet.logs import FactLog
from toolfleet.supervision import start_thread

log = FactLog("toolfleet.workers")

GOES_WITHIN_S: Final = 10.0
"""How long a worker may take to hand back what has not ended. Whoever stops it must wait for the grace and this."""

LOOK_EVERY_S: Final = 0.05
"""How often calls on threads are looked at, which tell nobody that they have ended."""


class Grace:
    """The time in which running calls may end."""

    def __init__(self, seconds: float) -> None:
        self._ends_at_s = time.monotonic() + seconds
        self.all_have_ended = False
        # Not an Event: a signal may interrupt another one's handler, which would then wait for itself.
        self._words: SimpleQueue[None] = SimpleQueue()

    def end(self, *_: object) -> None:
        """End it now. May be called by a signal, on any thread, and again."""
        self._words.put(None)

    def lasts(self, for_s: float = threading.TIMEOUT_MAX) -> bool:
        """Wait until it is over, or for so long. Returns whether it is not over."""
        left_s = self._ends_at_s - time.monotonic()
        with suppress(Empty):
            self._words.get(timeout=max(0.0, min(left_s, for_s)))
            self.end()  # for whoever asks next
            return False
        return left_s > for_s


class LetCallsEnd(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """A worker that stops, and reads no more, lets running calls end within the grace period."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._pool = consumer.pool
        self._grace_s = consumer.app.toolfleet.settings.shutdown_grace_s
        self._grace: Grace | None = None
        worker_shutting_down.connect(self._hear)

    def _hear(self, **_: Any) -> None:
        """Begin with the first signal, whatever Celery is at, and hurry with any further one."""
        if self._grace is None:
            self._begin()
        else:
            self._grace.end()

    def _begin(self) -> Grace:
        self._grace = Grace(self._grace_s)
        _go_in_time(self._grace, _ending_of(self._pool))
        return self._grace

    def stop(self, consumer: Any) -> None:
        """Let calls end when the worker stops. A lost connection, at which Celery stops its steps too, ends none."""
        if consumer.blueprint.state != bootsteps.CLOSE:
            return
        grace = self._grace or self._begin()  # it may stop by itself
        _end_at_next_signal(grace)
        if not _is_ours(self._pool):
            _let_threads_end(grace)
        try:
            self._pool.stop()
            grace.all_have_ended = True
        finally:
            grace.end()


class ReadNoMore(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """A worker that stops has begun with its last call before it withdraws what it has announced.

    So whoever sees it withdrawn, such as `up --reload`, knows that it begins nothing any more.
    """

    requires = ("toolfleet.workers.celery.announce:AnnounceTools",)  # which is stopped after this one

    def stop(self, consumer: Any) -> None:
        """Read and begin no more when the worker stops. After a lost connection it goes on."""
        if consumer.blueprint.state == bootsteps.CLOSE and consumer.task_consumer:
            ignore_errors(consumer, consumer.task_consumer.cancel)
            if _is_ours(consumer.pool):
                consumer.pool.begin_no_more()


def _is_ours(pool: Any) -> bool:
    return hasattr(pool, "perform")


def _ending_of(pool: Any) -> Callable[[], None]:
    """Return what ends the calls of a pool after the grace; nothing does on threads, which are left as they are."""
    return pool.end_grace if _is_ours(pool) else lambda: None


def _end_at_next_signal(grace: Grace) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may ask for signals
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, grace.end)


def _go_in_time(grace: Grace, end_calls: Callable[[], None]) -> None:
    """Call `end_calls` when the grace is over, and end this process a little later if it is still there."""
    has_gone = threading.Event()

    def watch() -> None:
        while grace.lasts():
            pass
        if not grace.all_have_ended:
            end_calls()
        if not has_gone.wait(GOES_WITHIN_S):
            log.error("worker_did_not_stop", seconds=GOES_WITHIN_S, calls=[each.id for each in state.active_requests])
            os._exit(ExitStatus.FAILED)

    def gone(**_: Any) -> None:
        has_gone.set()

    worker_shutdown.connect(gone, weak=False)
    start_thread("stopping", watch, again=False)


def _let_threads_end(grace: Grace) -> None:
    """Wait for the calls on threads, and give up what has not ended: a thread cannot be stopped, its process can."""
    while state.active_requests and grace.lasts(LOOK_EVERY_S):
        pass
    for request in tuple(state.active_requests):
        log.info("left_at_shutdown", call_id=request.id, tool=request.name)
        request.give_up(in_order=True)
