"""Calls to Celery messages: what is asked for in one tick leaves in one batch.

Knows nothing of brokers or results. Publishing a call again is always safe: what must
happen once is claimed by its call id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import stamina
import structlog

from toolfleet.calls import Failed, FailureKind, ToolCall
from toolfleet.errors import BrokerUnreachable, Refused
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.envelopes import task_message
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.publishers import Publisher
from toolfleet.streams import Priority
from toolfleet.streams.direct import TaskMessage
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

log = structlog.get_logger("toolfleet.orchestrator")

MAX_BATCH: Final = 200
"""Messages in one command: workers start on the first ones while the rest are prepared."""

RETRY_FOR_S: Final = 30.0
"""How long a broker may be away before the caller hears of it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A call and where it goes."""

    call: ToolCall
    spec: ToolSpec
    priority: Priority
    sent: asyncio.Future[bool] | None = None
    """Done when this call is in its queue, or (False) when it cannot be sent."""


class Dispatcher:
    """Sends calls that the gatherer expects, and tells it of those that could not be sent. For one event loop."""

    def __init__(self, publisher: Publisher, seal: Seal, gatherer: Gatherer, catalog: Catalog) -> None:
        self._publisher = publisher
        self._catalog = catalog
        self._seal = seal
        self._gatherer = gatherer
        self._outbox: list[Outgoing] = []
        self._sending: asyncio.Task[None] | None = None
        self.dispatched = 0

    def send(self, calls: Sequence[Outgoing]) -> asyncio.Future[bool]:
        """Send calls; returns at once, with what is done when the last of them is in its queue (False: cannot be sent).

        What is sent in the same tick, or while a batch is on its way, goes together.
        """
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[bool] = loop.create_future()
        if calls:
            self._outbox += calls[:-1]
            self._outbox.append(replace(calls[-1], sent=sent))
        else:
            sent.set_result(True)
        if self._sending is None and self._outbox:
            self._sending = loop.create_task(self._send_all())
        return sent

    async def aclose(self) -> None:
        """Send what is queued, then let go of the broker."""
        if self._sending is not None:
            await self._sending
        await self._publisher.aclose()

    async def _send_all(self) -> None:
        try:
            while self._outbox:
                batch, self._outbox = self._outbox[:MAX_BATCH], self._outbox[MAX_BATCH:]
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: Sequence[Outgoing]) -> None:
        messages = [message for item in batch if (message := self._sealed(item))]
        try:
            await self._publish(messages)
        except BrokerUnreachable as error:
            self._gatherer.fail([item.call for item in batch], error)
            are_sent = False
        else:
            self.dispatched += len(batch)
            are_sent = True
        for item in batch:
            if item.sent is not None and not item.sent.done():
                item.sent.set_result(are_sent)

    def _sealed(self, item: Outgoing) -> TaskMessage | None:
        """The call as a message; one that no worker would take has its result at once."""
        try:
            return task_message(item.call, item.spec, item.priority, self._seal, self._catalog.routes.lane(item.spec))
        except Refused as refusal:
            message = f"{item.call.tool} was not sent: {refusal}."
            self._gatherer.end(item.call, Failed(kind=FailureKind.LIMIT, message=message))
            return None

    async def _publish(self, messages: Sequence[TaskMessage]) -> None:
        try:
            await self._publisher.publish(messages)
        except BrokerUnreachable as error:
            log.warning("dispatch_retried", calls=len(messages), error=str(error))
        else:
            return
        async for attempt in stamina.retry_context(
            on=BrokerUnreachable, attempts=None, timeout=RETRY_FOR_S, wait_max=2.0
        ):
            with attempt:
                await self._publisher.publish(messages)
