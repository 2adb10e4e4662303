"""Calls to Celery messages: what is asked for in one tick leaves in one batch.

Knows nothing of brokers or results. Publishing a call again is always safe: what must
happen once is claimed by its call id.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from toolfleet.batcher import Batcher
from toolfleet.calls import Failed, FailureKind, ToolCall
from toolfleet.errors import BrokerUnreachable, Refused
from toolfleet.logs import FactLog
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.envelopes import task_message
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.publishers import Publisher
from toolfleet.outages import while_it_may_be_away
from toolfleet.streams import Priority
from toolfleet.streams.direct import TaskMessage
from toolfleet.tool import ToolSpec
from toolfleet.tracing.conventions import (
    CALL,
    DESTINATION,
    MESSAGE_ID,
    MESSAGING,
    MESSAGING_OPERATION,
    MESSAGING_TYPE,
    SYSTEM,
)
from toolfleet.tracing.ended import Ended
from toolfleet.tracing.trace import is_sampled, span_of_sending
from toolfleet.wire import Seal

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet.orchestrator")

MAX_BATCH: Final = 200
"""Messages in one command: workers start on the first ones while the rest are prepared."""

REMEMBERED: Final = 2000
"""Of how many of the newest calls those can be sent again that have no recorded result when the store loses seconds."""

RETRY_FOR_S: Final = 30.0
"""How long a broker may be away before the caller hears of it."""


class Outgoing(NamedTuple):
    """A call on its way out: its tool's spec and its priority say where it goes."""

    call: ToolCall
    spec: ToolSpec
    priority: Priority


class Unrecorded(NamedTuple):
    """A call that may be sent again, and whose result is recorded nowhere."""

    item: Outgoing
    number: int
    """How many such calls had been sent with it."""
    sent_s: float | None = None
    """When it was in its queue, by our monotonic clock; None while it is on its way."""


class Dispatcher:
    """Sends calls that the gatherer expects, and tells it of those that could not be sent. For one event loop."""

    def __init__(
        self, publisher: Publisher, seal: Seal, gatherer: Gatherer, catalog: Catalog, tracing: Tracing | None = None
    ) -> None:
        self._publisher = publisher
        self._catalog = catalog
        self._seal = seal
        self._gatherer = gatherer
        self._tracing = tracing
        self._batcher = Batcher(self._send_batch, max_batch=MAX_BATCH)
        self._unrecorded: OrderedDict[str, Unrecorded] = OrderedDict()
        self._repeatable = 0
        self.dispatched = 0

    def send(self, calls: Sequence[Outgoing]) -> asyncio.Future[bool]:
        """Queue calls to be sent, and return at once. The future is done when all of them are in their queues.

        It is False when any of them cannot be sent. What is sent in the same tick, or while a batch is on its way, goes
        together.
        """
        if calls:
            return self._batcher.add_all(calls)
        sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        sent.set_result(True)
        return sent

    def send_again(self, since_s: float) -> int:
        """Send again what may be repeated of all that was sent since then, by our monotonic clock; how many calls.

        A call whose result is recorded is not: its message has done its work, whatever the store has forgotten.
        A call that may have one effect is not: its message was read within milliseconds, and the claim that would keep
        a second one from having it may be lost as well. Its worker's result counts, or it expires at its deadline.
        """
        now_unix_s = time.time()
        lost = [
            known
            for known in self._unrecorded.values()
            if known.sent_s is not None and known.sent_s >= since_s and known.item.call.deadline_unix_s > now_unix_s
        ]
        for known in lost:
            self._unrecorded[known.item.call.call_id] = known._replace(sent_s=None)
        if lost:
            self._batcher.add_all([known.item for known in lost])
        return len(lost)

    def forget(self, call_ids: Iterable[str]) -> None:
        """Take note that the results of these calls are recorded."""
        for call_id in call_ids:
            self._unrecorded.pop(call_id, None)

    async def aclose(self) -> None:
        """Send what is queued, then let go of the broker."""
        await self._batcher.drain()
        await self._publisher.aclose()

    async def _send_batch(self, batch: Sequence[Outgoing]) -> list[bool]:
        began_unix_s = time.time() if self._tracing else 0.0
        messages = [message for item in batch if (message := self._seal_or_end(item))]
        self._remember(batch)
        try:
            await self._publish(messages)
        except BrokerUnreachable as error:
            call_ids = [item.call.call_id for item in batch]
            self.forget(call_ids)
            self._gatherer.fail(call_ids, error)
            return [False] * len(batch)
        self._note_sent(batch)
        if self._tracing is not None:
            _record_sending(self._tracing, batch, began_unix_s)
        self.dispatched += len(batch)
        for item in batch:
            RUNS.add_sent(item.spec.name, item.spec.queue)
        return [True] * len(batch)

    def _remember(self, batch: Sequence[Outgoing]) -> None:
        """Remember what may be sent again, before it is sent: its result may be recorded before we hear that it was."""
        unrecorded = self._unrecorded
        for item in batch:
            if item.spec.effect.repeatable:
                self._repeatable += 1
                unrecorded[item.call.call_id] = Unrecorded(item, self._repeatable)
                unrecorded.move_to_end(item.call.call_id)
        while unrecorded and next(iter(unrecorded.values())).number <= self._repeatable - REMEMBERED:
            unrecorded.popitem(last=False)

    def _note_sent(self, batch: Sequence[Outgoing]) -> None:
        now = time.monotonic()
        for item in batch:
            if (known := self._unrecorded.get(item.call.call_id)) is not None:
                self._unrecorded[item.call.call_id] = known._replace(sent_s=now)

    def _seal_or_end(self, item: Outgoing) -> TaskMessage | None:
        """Return the call as a message. One that no worker would take gets its result at once, and None is returned."""
        try:
            return task_message(item.call, item.spec, item.priority, self._seal, self._catalog.routes.lane(item.spec))
        except Refused as refusal:
            message = f"{item.call.tool} was not sent: {refusal}."
            self._gatherer.end(item.call.call_id, Failed(kind=FailureKind.LIMIT, message=message))
            return None

    async def _publish(self, messages: Sequence[TaskMessage]) -> None:
        try:
            await self._publisher.publish(messages)
        except BrokerUnreachable as error:
            log.warning("dispatch_retried", calls=len(messages), error=str(error))
        else:
            return
        await while_it_may_be_away(lambda: self._publisher.publish(messages), for_s=RETRY_FOR_S, on=BrokerUnreachable)


def _record_sending(tracing: Tracing, batch: Sequence[Outgoing], began_unix_s: float) -> None:
    """Record that calls are in their queues: the producer's half, to which the worker's is linked."""
    now = time.time()
    for item in batch:
        call, queue = item.call, item.spec.queue
        if call.traceparent and is_sampled(call.traceparent):
            attributes = {
                MESSAGING: SYSTEM,
                MESSAGING_OPERATION: "send",
                MESSAGING_TYPE: "send",
                DESTINATION: queue,
                MESSAGE_ID: call.call_id,
                CALL: call.call_id,
            }
            tracing.record(
                Ended(
                    f"send {queue}",
                    call.traceparent,
                    attributes,
                    began_unix_s,
                    now,
                    kind="producer",
                    span_id=span_of_sending(call.call_id),
                    tracestate=call.tracestate,
                )
            )
