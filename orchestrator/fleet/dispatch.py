"""Calls to Celery messages: what is asked for in one tick leaves in one batch.

Knows nothing of brokers or results. Publishing a call again is always safe: what must
happen once is claimed by its call id.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

MAX_BATCH: Final = 200
"""Messages in one command: workers start on the first ones while the rest are prepared."""

REMEMBERED: Final = 2000
"""How many of the newest messages can be sent again when the store has lost its last seconds."""

RETRY_FOR_S: Final = 30.0
"""How long a broker may be away before the caller hears of it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A call on its way out: its tool's spec and its priority say where it goes."""

    call: ToolCall
    spec: ToolSpec
    priority: Priority


class Dispatcher:
    """Sends calls that the gatherer expects, and tells it of those that could not be sent. For one event loop."""

    def __init__(self, publisher: Publisher, seal: Seal, gatherer: Gatherer, catalog: Catalog) -> None:
        self._publisher = publisher
        self._catalog = catalog
        self._seal = seal
        self._gatherer = gatherer
        self._batcher = Batcher(self._send_batch, max_batch=MAX_BATCH)
        self._recent: deque[tuple[float, Outgoing]] = deque(maxlen=REMEMBERED)
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
        lost = [item for at_s, item in self._recent if at_s >= since_s and not self._gatherer.has_ended(item.call)]
        # They come back once they are sent, with the time of that.
        kept = [(at_s, item) for at_s, item in self._recent if at_s < since_s]
        self._recent = deque(kept, maxlen=REMEMBERED)
        if lost:
            self._batcher.add_all(lost)
        return len(lost)

    async def aclose(self) -> None:
        """Send what is queued, then let go of the broker."""
        await self._batcher.drain()
        await self._publisher.aclose()

    async def _send_batch(self, batch: Sequence[Outgoing]) -> list[bool]:
        messages = [message for item in batch if (message := self._seal_or_end(item))]
        try:
            await self._publish(messages)
        except BrokerUnreachable as error:
            self._gatherer.fail([item.call.call_id for item in batch], error)
            return [False] * len(batch)
        self.dispatched += len(batch)
        for item in batch:
            RUNS.add_sent(item.spec.name, item.spec.queue)
        now = time.monotonic()
        self._recent.extend((now, item) for item in batch if item.spec.effect.repeatable)
        return [True] * len(batch)

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
