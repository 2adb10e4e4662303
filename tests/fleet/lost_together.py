"""Imported by a worker: while it looks after one lost child, those that are stopped go on, and are lost too."""

import signal
import time
from contextlib import suppress

import psutil

from toolfleet.workers.celery.processes import KeepingPool

GONE_WITHIN_S = 5.0

flush_one = KeepingPool.process_flush_queues


def flush_while_others_are_lost(self, lost):
    flush_one(self, lost)
    for child in self._pool:
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process = psutil.Process(child.pid)
            if process.status() == psutil.STATUS_STOPPED:
                process.send_signal(signal.SIGCONT)
                until_ended(process)


def until_ended(process):
    """Wait until it has ended; the pool has still to collect it."""
    give_up = time.monotonic() + GONE_WITHIN_S
    while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up:
        time.sleep(0.01)


KeepingPool.process_flush_queues = flush_while_others_are_lost
