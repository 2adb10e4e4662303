"""Celery's pool of threads, whose end waits for none of them.

Whoever stops the worker has waited by then (`stopping.py`), and what has not ended was given up: a thread cannot be
stopped, so Celery's own waits for the slowest tool there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery.concurrency.thread import TaskPool

from toolfleet.workers.tool.threads import TOOL_THREAD


class ThreadPool(TaskPool):  # type: ignore[misc]  # celery ships no types
    """Performs each call on a thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # By their name the worker's command knows that Python would wait for them.
        self.executor = ThreadPoolExecutor(max_workers=self.limit, thread_name_prefix=TOOL_THREAD)

    def on_stop(self) -> None:
        """Begin nothing more."""
        self.executor.shutdown(wait=False, cancel_futures=True)
