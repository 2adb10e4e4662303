"""The step of Celery's consumer blueprint that looks for marks of cancelled calls among those that run here.

Whoever has Celery broadcasts as well, which is heard at once; a client without it leaves the signed mark alone, and a
worker whose connection was lost finds there what it has missed. A call of less than a moment costs no look.
"""

from __future__ import annotations

import signal
from typing import Any, Final, cast

from celery import bootsteps
from celery.worker import state

from toolfleet.connections import connect
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.workers.celery.request import ToolRequest

log = FactLog("toolfleet.workers")

LOOK_EVERY_S: Final = 1.0
MAX_LOOKED_AT: Final = 1000
"""Marks of one command; the others are looked at with the next ones."""


class HeedCancelMarks(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Ends running calls that one of the fleet has marked as cancelled."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        fleet = consumer.app.toolfleet
        self._keys, self._seal, self._settings = fleet.settings.keys, fleet.seal, fleet.settings
        self._client: Any = None
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Look again and again."""
        self.stop(consumer)
        self._client = connect(self._settings)
        self._timer = consumer.timer.call_repeatedly(LOOK_EVERY_S, self._look, (consumer,))

    def stop(self, consumer: Any) -> None:  # noqa: ARG002  # Celery's signature
        """Look no more. While a worker lets its calls end, only what is broadcast ends them."""
        if self._timer is not None:
            self._timer.cancel()
            self._client.close()
            self._timer = None

    def _look(self, consumer: Any) -> None:
        if self._timer is None:
            return
        running = [request for request in tuple(state.requests.values()) if _is_asked_about(request)][:MAX_LOOKED_AT]
        if not running:
            return
        try:
            marks = cast("list[bytes | None]", self._client.mget([self._keys.cancelled(each.id) for each in running]))
        except COMMAND_FAILED as error:
            log.info("cancel_marks_not_read", error=str(error))
            return
        for request, mark in zip(running, marks, strict=True):
            if mark is not None and self._seal.believes_cancel(mark, request.id):
                state.revoked.add(request.id)
                request.terminate(consumer.pool, signal=signal.SIGTERM)


def _is_asked_about(request: Any) -> bool:
    return isinstance(request, ToolRequest) and not request.acknowledged and request.id not in state.revoked
