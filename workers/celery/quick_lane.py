"""Where the tools' loop takes common calls in as it reads them, and what Celery can still see of each.

No message and no request are made of such a call, unless Celery must know of it: it runs on beyond a moment, or
somebody asks what runs or takes it back. What is not common goes on to `intake.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolfleet.logs import FactLog
from toolfleet.streams.entries import StreamMessage, tag_of
from toolfleet.streams.plain_entry import PlainEntry, plain_entry
from toolfleet.workers.celery.request import ToolRequest
from toolfleet.workers.celery.task import ToolTask
from toolfleet.workers.celery.task_events import EndedCall
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.endings import Ending
from toolfleet.workers.perform.quick_calls import Common, CommonCalls, QuickCall

if TYPE_CHECKING:
    from toolfleet.streams.channel import StreamChannel
    from toolfleet.streams.entries import DeliveredEntry

log = FactLog("toolfleet.workers")


class QuickRequest(QuickCall):
    """A common call, in the place of the request that it would have with Celery."""

    __slots__ = ("_ended", "_entry", "_lane", "_request", "_tag", "id", "name", "task")

    def __init__(
        self, lane: QuickLane, entry: DeliveredEntry, delivery: Delivery, common: Common, task: ToolTask
    ) -> None:
        super().__init__(delivery, common)
        self.id = delivery.task_id
        self.name = delivery.task
        self.task = task
        self._lane = lane
        self._entry = entry
        self._tag = tag_of(entry.stream, entry.entry_id)
        self._request: ToolRequest | None = None
        self._ended: tuple[Ending, float] | None = None

    def begin(self) -> None:
        """Hold the message, whose work has begun."""
        qos = self._lane.channel.qos
        qos.append(self, self._tag)
        qos.started.add(self._tag)

    def end(self, ending: Ending) -> bool:
        """Tell the transport what the message still needs. Returns whether Celery knows that the call has started."""
        qos = self._lane.channel.qos
        match ending:
            case Ending.HANDED_BACK:
                qos.hand_back([self._tag])
            case Ending.LEFT_OPEN | Ending.NOT_PERFORMED:
                qos.reject(self._tag, requeue=True)
            case _:
                qos.forget(self._tag)
        # In this order, as `tell` has it the other way round: one of the two threads sees what the other has done.
        self._ended = ending, self.ran_s
        return self._request is not None

    def tell(self) -> EndedCall | None:
        """Bring Celery's records up to date, on its thread, as a request does.

        Returns what is still to be told of a call that has ended before: what its request would say, without one.
        """
        if self._request is None:
            if self._ended is not None:
                return self.ended_call(*self._ended)
            self._request = self._lane.request_of(self._entry, self)
        if self._ended is not None:
            self._request.has_ended(*self._ended)
        self._request.tell()
        return None

    def ended_call(self, ending: Ending, ran_s: float) -> EndedCall:
        """Return what is told of this call if Celery learns of it only now."""
        return EndedCall(self.id, self.name, self.delivery.came_unix_s, ending, ran_s)


class QuickLane:
    """Takes common calls in for one channel, on the tools' loop."""

    def __init__(
        self, consumer: Any, channel: StreamChannel, calls: CommonCalls, start: Callable[[QuickRequest], None]
    ) -> None:
        """`start` begins to perform a call."""
        self.channel = channel
        self._tasks: Mapping[str, ToolTask] = consumer.app.toolfleet.living.tasks
        self._consumer = consumer
        self._calls = calls
        self._start = start
        self._revoked = consumer.controller.state.revoked
        self._hears_of_all = consumer.on_task_message
        self._worker = str(consumer.hostname)
        self._pid = os.getpid()

    def take(self, entry: DeliveredEntry) -> bool:
        """Start the call of an entry that was read, if it is a common one. Nothing has happened to any other."""
        try:
            quick = self._quick(entry)
        except Exception:  # no message may end the reading, whatever was overlooked; `intake.py` has the last word
            log.exception("entry_not_taken", stream=entry.stream, entry_id=entry.entry_id)
            return False
        if quick is None:
            return False
        quick.begin()
        self._start(quick)
        return True

    def _quick(self, entry: DeliveredEntry) -> QuickRequest | None:
        plain = plain_entry(entry, self.channel.max_message_bytes)
        task = None if plain is None else self._tasks.get(plain.tool)
        if plain is None or task is None or plain.call_id in self._revoked or self._hears_of_all:
            return None
        delivery = self._delivery(entry, plain)
        common = self._calls.common(delivery)
        return None if common is None else QuickRequest(self, entry, delivery, common, task)

    def _delivery(self, entry: DeliveredEntry, plain: PlainEntry) -> Delivery:
        """Return what `Delivery.of` makes of the message of this entry."""
        return Delivery(
            task_id=plain.call_id,
            task=plain.tool,
            text=plain.text,
            mac=plain.mac,
            stream=entry.stream,
            entry_id=entry.entry_id,
            consumer=self.channel.holdings.consumer,
            claimed_s=plain.claimed_s,
            worker=self._worker,
            came_unix_s=time.time(),
            sent_once=plain.sent_once,
            contract=plain.contract,
            gates=plain.gates,
        )

    def request_of(self, entry: DeliveredEntry, quick: QuickRequest) -> ToolRequest:
        """Return the request that Celery is shown of a call that has started."""
        message = StreamMessage.from_delivery(
            self.channel, entry, self.channel.holdings.consumer, self.channel.max_message_bytes
        )
        request = ToolRequest(message, quick.task, self._consumer)
        request.delivery = quick.delivery  # which knows when it came
        request.has_begun(self._pid, quick.delivery.came_unix_s)
        return request
