"""Notices lost child processes of prefork soon, so that their calls are answered or repeated soon.

A step of Celery's consumer blueprint; the only one here that knows of child processes.
"""

from __future__ import annotations

from typing import Any, Final

from celery import bootsteps

LOOK_EVERY_S: Final = 0.5
"""billiard looks when a child's pipe closes, which the kernel does before the child can be waited for: it often sees
nothing, and looks again only after five seconds."""


class NoticeLostChildren(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Asks the pool to look after its processes every half second."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Begin to look. Without an event loop, billiard has a thread of its own for it."""
        self.stop(consumer)
        if consumer.hub is not None:
            self._timer = consumer.timer.call_repeatedly(LOOK_EVERY_S, consumer.pool.maintain_pool)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002  # Celery's signature
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
