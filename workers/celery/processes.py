"""Celery's pool of processes, but what was given to a child stays given, whatever becomes of the connection.

Celery's own forgets such calls when the connection to the broker is lost, for the broker to deliver them again, though
they are in a child's pipe and will run there: a call with an effect would have it twice. The other pools have no pipe.

Three smaller things are otherwise too: children end with their worker (`pool_child.py`), the timers of calls that have
ended are dropped, and a tool may start processes of its own with `multiprocessing`.
"""

from __future__ import annotations

import heapq
import os
import signal
from multiprocessing import process as multiprocessing_process
from typing import Any, Final

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool
from celery.signals import worker_process_init

from toolfleet.workers.celery.pool_child import PoolChild

DROPPED_AT_ONCE: Final = 500
"""So many timers of ended calls are dropped together, or half of all there are, so that each costs the same."""

_MAIN: Final = multiprocessing_process.current_process()
"""As whom the worker's own main process is known to `multiprocessing`."""


class KeepingPool(AsynPool):  # type: ignore[misc]  # celery ships no types
    """A pool that drops only what no child can have read a byte of."""

    Worker = PoolChild

    def WorkerProcess(self, worker: PoolChild) -> Any:  # noqa: N802  # its name is Celery's
        """Make a process of what is to run in a child, and tell that whose it is."""
        worker.worker_pid, worker.pipes = os.getpid(), list(self._queues)
        return super().WorkerProcess(worker)

    def flush(self) -> None:
        """Drop the calls that were not written to a child yet; called when the connection is lost."""
        given = [job for job in self._cache.values() if job._write_to is not None and not job._accepted]
        # Celery spares what a child has accepted; its word is still on its way for these.
        for job in given:
            job._accepted = True
        try:
            super().flush()
        finally:
            for job in given:
                job._accepted = bool(job._worker_pid)  # its word may have come meanwhile

    def _create_timelimit_handlers(self, hub: Any) -> None:
        """Drop the timer of a call's deadline when the call ends.

        Celery's own only marks it: it would stay in memory, with the call, until a deadline that may be days away.
        """
        super()._create_timelimit_handlers(hub)
        cancel: Any = self.on_timeout_cancel  # type: ignore[has-type]  # celery sets it just now
        ended = 0

        def cancel_and_drop(job: Any) -> None:
            nonlocal ended
            cancel(job)
            ended += 1
            if ended > max(DROPPED_AT_ONCE, len(hub.timer) // 2):
                ended = 0
                drop_cancelled(hub.timer)

        self.on_timeout_cancel = cancel_and_drop

    def on_job_process_down(self, job: Any, pid_gone: int) -> None:
        """Take back a call whose child is gone, unless the child has said that it began."""
        child = job._write_to
        if child is not None and not job._accepted and not child._is_alive():
            # It may have ended just now, while another lost child was looked after: its word is still in its pipe.
            self.process_flush_queues(child)
        super().on_job_process_down(job, pid_gone)


class ProcessPool(TaskPool):  # type: ignore[misc]  # celery ships no types
    """Performs each call in a process of its own, which can be killed."""

    Pool = KeepingPool


def drop_cancelled(timer: Any) -> None:
    """Forget what a timer of kombu's will not do any more."""
    queue = timer._queue
    # In its place: whoever waits for the next entry holds the same list.
    queue[:] = [scheduled for scheduled in queue if not scheduled.entry.canceled]
    heapq.heapify(queue)


@worker_process_init.connect  # type: ignore[untyped-decorator]  # celery ships no types
def _let_tools_start_processes(**_: Any) -> None:
    """Make each child a main process to `multiprocessing`, which forbids processes to one that is a daemon.

    Celery's children are daemons so that they end with their parent, which remains so.
    """
    os.register_at_fork(after_in_child=_end_when_told)
    multiprocessing_process._current_process = _MAIN  # type: ignore[attr-defined]  # billiard sets it too


def _end_when_told() -> None:
    """Let what a tool has forked end at SIGTERM, by which `multiprocessing` ends its pools.

    What our children do at it is written in Python, and would wait behind a lock that a pool's process waits for.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
