"""What people do with webhooks, whatever the door: endpoints, what came of attempts, what was given up, a test."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Self

import redis.asyncio

from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.orchestrator.webhooks.owing import id_of, message_for
from toolfleet.orchestrator.webhooks.records import Endpoint, Notice, WebhookAttempt, WebhookEvent
from toolfleet.orchestrator.webhooks.sending import Destination, send
from toolfleet.settings import Settings
from toolfleet.wire import Seal


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The webhooks of one fleet. Raises StoreUnreachable."""

    endpoints: Endpoints
    outbox: Outbox
    settings: Settings

    @classmethod
    def through(cls, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> Self:
        """Make it for one connection."""
        return cls(Endpoints(client, settings, seal), Outbox(client, settings, seal), settings)

    async def test(self, endpoint: Endpoint) -> WebhookAttempt:
        """Send a message now, once, and return what came of it. Nothing is owed by it."""
        notice = Notice(WebhookEvent.TEST, endpoint.endpoint_id, {"endpoint_id": endpoint.endpoint_id}, {})
        owed = message_for(endpoint, notice, id_of(notice, secrets.token_hex(16)), endpoint.endpoint_id)
        began_unix_s = time.time()
        to = Destination(endpoint.url, secrets=self.endpoints.secrets_of(endpoint))
        outcome = await send(owed, to, self.settings)
        return WebhookAttempt(
            delivery_id=owed.delivery_id,
            endpoint_id=endpoint.endpoint_id,
            event=owed.event,
            about=owed.about,
            number=1,
            at_unix_s=began_unix_s,
            took_s=outcome.took_s,
            status=outcome.status,
            error=outcome.error,
            answer=outcome.answer,
        )
