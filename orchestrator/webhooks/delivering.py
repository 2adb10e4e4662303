"""Sends what is owed, from each orchestrator: takes what is due, some at a time, and notes what came of it.

Looks once a second, and at once for what was owed here. Where nobody is to be told of anything it asks just that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import WebhookNotFound
from toolfleet.orchestrator.webhooks.asked import AskedQuestions
from toolfleet.orchestrator.webhooks.destinations import Destinations, Nowhere
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.outbox import Outbox, Taken
from toolfleet.orchestrator.webhooks.owing import Owing
from toolfleet.orchestrator.webhooks.pushes import Pushes
from toolfleet.orchestrator.webhooks.records import WebhookAttempt
from toolfleet.orchestrator.webhooks.schedule import wait_s
from toolfleet.orchestrator.webhooks.sending import GONE, Outcome, send
from toolfleet.points import Point, reached
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.supervision import Errands, Kept, Supervisor

log = FactLog("toolfleet.orchestrator")

LOOK_EVERY_S: Final = 1.0
AT_ONCE: Final = 32
"""Attempts that one process makes at the same time."""

AGAIN_S: Final = 0.05
"""How soon it looks again where more is due than it has looked at."""

CLOSE_WITHIN_S: Final = 2.0
"""How long whoever stops lets attempts end; what is left is due again once its lease has ended."""


class Delivering:
    """Delivers for one orchestrator, and tells `owing` which endpoints there are."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        endpoints: Endpoints,
        owing: Owing,
        pushes: Pushes,
        asked: AskedQuestions,
        settings: Settings,
        supervisor: Supervisor,
        woken: asyncio.Event,
    ) -> None:
        """`woken` is set by whoever has owed something, to have it sent at once."""
        self._outbox = outbox
        self._endpoints = endpoints
        self._owing = owing
        self._asked = asked
        self._settings = settings
        self._supervisor = supervisor
        self._errands = Errands("webhook")
        self._busy = Counter[str]()
        self._kept: Kept | None = None
        self._wake = woken
        self._closing = False
        self._destinations = Destinations(owing, endpoints, pushes)

    async def start(self) -> None:
        """Learn which endpoints there are, then deliver. Raises StoreUnreachable."""
        self._know(await self._outbox.endpoints())
        self._kept = self._supervisor.keep("webhooks", self._deliver_for_ever)

    async def aclose(self) -> None:
        """Stop. What is under way has a moment to end."""
        self._closing = True
        self._wake.set()
        if self._kept is not None:
            # Cancelled while it takes messages, it would leave them to their lease.
            await self._kept.ended(within_s=CLOSE_WITHIN_S)
            await self._kept.aclose()
        await self._errands.aclose(within_s=CLOSE_WITHIN_S)

    async def _deliver_for_ever(self) -> None:
        if self._settings.previous_secret.get_secret_value():
            await self._seal_endpoints_anew()
        had_any = True  # what is owed to endpoints that are gone is to be forgotten once
        while not self._closing:
            wait = LOOK_EVERY_S
            try:
                if had_any or self._owing.endpoints or await self._outbox.has_any():
                    had_any, wait = await self._look()
            except COMMAND_FAILED as error:
                log.info("webhooks_not_looked_at", error=str(error))
            await self._woken(wait)

    async def _woken(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _look(self) -> tuple[bool, float]:
        """Take what is due, and begin to send it. Returns whether there is anything to come, and when to look again."""
        room = AT_ONCE - self._busy.total()
        if room <= 0:
            return True, LOOK_EVERY_S
        due = await self._outbox.take(room, self._busy)
        self._know(due.endpoints)
        for taken in due.taken:
            self._busy[taken.owed.endpoint_id] += 1
            self._errands.run(self._handle(taken))
        await self._asked.look()
        if due.next_in_s is None or len(due.taken) == room:  # whoever makes room wakes it
            return due.next_in_s is not None, LOOK_EVERY_S
        return True, min(LOOK_EVERY_S, max(AGAIN_S, due.next_in_s))

    def _know(self, endpoints: Mapping[bytes, bytes]) -> None:
        self._destinations.stored = frozenset(endpoints)
        self._owing.know(self._endpoints.opened(endpoints))

    async def _handle(self, taken: Taken) -> None:
        endpoint_id = taken.owed.endpoint_id
        try:
            await self._deliver(taken)
        except StoreUnreachable as error:  # it is due again once its lease has ended
            log.info("webhook_not_noted", delivery_id=taken.owed.delivery_id, error=str(error))
        finally:
            is_full = self._busy.total() >= AT_ONCE
            self._busy[endpoint_id] -= 1
            if not self._busy[endpoint_id]:
                del self._busy[endpoint_id]
            if is_full:
                self._wake.set()

    async def _deliver(self, taken: Taken) -> None:
        match await self._destinations.of(taken.owed):
            case Nowhere.NOT_OURS:
                return  # left to its lease: another process may have the secret that it is sealed with
            case Nowhere.GONE:
                await self._outbox.settle(taken, "over")
            case Nowhere.DISABLED:
                await self._outbox.settle(taken, "dead")
            case where:
                reached(Point.WEBHOOK_TAKEN, taken.owed.delivery_id)
                began_unix_s = time.time()
                outcome = await send(taken.owed, where, self._settings)
                reached(Point.WEBHOOK_ANSWERED, taken.owed.delivery_id)
                await self._note(taken, outcome, began_unix_s)

    async def _note(self, taken: Taken, outcome: Outcome, began_unix_s: float) -> None:
        owed, number = taken.owed, taken.attempts + 1
        is_gone = outcome.status == GONE
        wait = None
        if outcome.error and not is_gone:
            waits, asked = self._settings.webhook_waits_s, outcome.retry_after_s
            wait = wait_s(waits, number, retry_after_s=asked, chance=random.random())
        attempt = WebhookAttempt(
            delivery_id=owed.delivery_id,
            endpoint_id=owed.endpoint_id,
            event=owed.event,
            about=owed.about,
            number=number,
            at_unix_s=began_unix_s,
            took_s=outcome.took_s,
            status=outcome.status,
            error=outcome.error,
            answer=outcome.answer,
            next_unix_s=None if wait is None else time.time() + wait,
        )
        if not outcome.error:
            await self._outbox.settle(taken, "over", attempt=attempt)
            return
        fields: dict[str, Any] = {"delivery_id": owed.delivery_id, "attempt": number, "error": outcome.error}
        if wait is not None:
            log.info("webhook_not_delivered", next_in_s=round(wait, 1), **fields)
            await self._outbox.settle(taken, "again", wait_s=wait, attempt=attempt)
            if wait < LOOK_EVERY_S:
                self._wake.set()  # it may look too late otherwise
            return
        log.warning("webhook_given_up", **fields)
        await self._outbox.settle(taken, "dead", attempt=attempt)
        if is_gone:
            await self._destinations.give_up(owed)

    async def _seal_endpoints_anew(self) -> None:
        for endpoint_id in await self._endpoints.all():
            try:
                await self._endpoints.reseal(endpoint_id)
            except WebhookNotFound:
                continue  # removed meanwhile
