"""Celery's task events, sent in large batches: what Flower and `celery events` show, at a price that a fleet can pay.

Celery sends 24 at a time and encodes each with a slow encoder; here all of one turn of the event loop travel together.
A call that ends within STARTED_AFTER_S has no `task-started` of its own: its `task-succeeded` says when it started.
Its `task-received` is sent all the same: Flower counts those as what a worker has processed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson
from celery.events.dispatcher import EventDispatcher
from celery.utils.time import utcoffset
from celery.worker import state

from toolfleet.workers.celery.request import event_of_end, event_of_receipt
from toolfleet.workers.perform.endings import Ending

STARTED_AFTER_S: Final = 1.0

MAX_BATCH: Final = 500


class EndedCall(NamedTuple):
    """What events say of a call that had ended before anybody was told of it."""

    call_id: str
    name: str
    came_unix_s: float
    ending: Ending
    ran_s: float

    def events(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """What happened, in this order. Another worker tells how a call ended that is its own by now."""
        receipt = event_of_receipt(self.name, self.came_unix_s)
        end = event_of_end(self.ending, self.name, self.came_unix_s, self.ran_s)
        if end is None:
            return (receipt,)
        end[1]["timestamp"] = self.came_unix_s + self.ran_s
        return receipt, end


class BatchingDispatcher(EventDispatcher):  # type: ignore[misc]  # celery ships no types
    """Celery's dispatcher with larger batches (named by `Events.dispatcher_cls`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.buffer_limit = MAX_BATCH

    def send_ended(self, calls: Iterable[EndedCall]) -> None:
        """Send of each call that it came and how it ended: the events that `send` would, all in one go."""
        waiting, tick = self._group_buffer["task"], self.clock.forward
        sender = {"hostname": self.hostname, "utcoffset": utcoffset(), "pid": self.pid}
        for call in calls:
            for kind, event in call.events():
                # Into what was made for it: another dict for each event would take half as long again.
                event["type"], event["uuid"], event["clock"] = kind, call.call_id, tick()
                event.update(sender)
                waiting.append(event)
            if len(waiting) >= self.buffer_limit:
                self.flush()
        self.flush()

    def _publish(self, event: Any, producer: Any, routing_key: str, **kwargs: Any) -> None:
        if producer is not None:
            super()._publish(event, _JsonProducer(producer), routing_key, **kwargs)


class _JsonProducer:
    """A producer that is given events and publishes JSON text."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def publish(self, event: Any, *, serializer: str, **options: Any) -> None:
        """As kombu's, with the serializer replaced by a quick one for the same content type."""
        del serializer
        text = orjson.dumps(event, default=str).decode()
        self._producer.publish(text, content_type="application/json", content_encoding="utf-8", **options)


def announce_long_calls() -> None:
    """Send `task-started` for each call that has run for STARTED_AFTER_S. Called about that often."""
    before = time.time() - STARTED_AFTER_S
    for request in tuple(state.active_requests):
        if announce := getattr(request, "announce_start", None):
            announce(before)
