"""Celery's pool of processes, but what was given to a child stays given, whatever becomes of the connection.

Celery's own forgets such calls when the connection to the broker is lost, for the broker to deliver them again, though
they are in a child's pipe and will run there: a call with an effect would have it twice. The other pools have no pipe.
"""

from __future__ import annotations

from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool


class KeepingPool(AsynPool):  # type: ignore[misc]  # celery ships no types
    """A pool that drops only what no child can have read a byte of."""

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
