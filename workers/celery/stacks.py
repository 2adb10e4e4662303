"""SIGUSR1 has a worker print where its threads are, and nothing of what they hold.

Celery's own answer to it prints the local variables of each frame, so the arguments and secrets of calls.
"""

from __future__ import annotations

import faulthandler
import signal
from typing import Any

from celery import bootsteps

from toolfleet.workers.celery.watchdog import STDERR


class PrintStacks(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Takes the signal from Celery, which has asked for it before its steps start."""

    def start(self, worker: Any) -> None:
        """Print the stacks from now on, also where the interpreter is busy."""
        del worker
        faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True)
