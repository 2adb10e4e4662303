"""Where a message goes, and what proves it there: an endpoint's URL and signatures, or what a task's configuration has.

Knows which of them are there no more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from toolfleet.errors import Refused
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import WebhookNotFound
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.owing import Owing
from toolfleet.orchestrator.webhooks.push_records import headers_of
from toolfleet.orchestrator.webhooks.pushes import Pushes
from toolfleet.orchestrator.webhooks.records import Owed
from toolfleet.orchestrator.webhooks.sending import Destination

log = FactLog("toolfleet.orchestrator")


class Nowhere(Enum):
    """Why a message is not sent now."""

    GONE = auto()
    """Nobody wants it any more."""
    DISABLED = auto()
    """Its endpoint is disabled: people may send it later."""
    NOT_OURS = auto()
    """It is not believed here: another process may have the secret that it is sealed with."""


@dataclass(slots=True)
class Destinations:
    """Finds them, and takes away what is there no more. Raises StoreUnreachable."""

    owing: Owing
    endpoints: Endpoints
    pushes: Pushes
    stored: Collection[bytes] = field(default=frozenset())
    """The ids of all endpoints, believed or not."""

    async def of(self, owed: Owed) -> Destination | Nowhere:
        """Return where a message goes."""
        return self._of_endpoint(owed) if owed.config_id is None else await self._of_push(owed, owed.config_id)

    def _of_endpoint(self, owed: Owed) -> Destination | Nowhere:
        endpoint = self.owing.endpoints.get(owed.endpoint_id)
        if endpoint is None and owed.endpoint_id.encode() in self.stored:
            return Nowhere.NOT_OURS
        if endpoint is None or endpoint.tenant != owed.tenant:
            return Nowhere.GONE
        if endpoint.disabled:
            return Nowhere.DISABLED
        return Destination(endpoint.url, secrets=tuple(self.endpoints.secrets_of(endpoint)))

    async def _of_push(self, owed: Owed, config_id: str) -> Destination | Nowhere:
        try:
            config = await self.pushes.find(owed.about, config_id)
            if config.tenant != owed.tenant:
                return Nowhere.GONE
            return Destination(config.url, headers=headers_of(config, self.pushes.secrets_of(config)))
        except WebhookNotFound:
            return Nowhere.GONE
        except Refused:
            return Nowhere.NOT_OURS

    async def give_up(self, owed: Owed) -> None:
        """Send nothing there any more: its receiver has said that it is gone."""
        if owed.config_id is not None:
            log.warning("push_configuration_dropped", run_id=owed.about, config_id=owed.config_id)
            await self.pushes.drop(owed.about, owed.config_id, tenant=owed.tenant)
            return
        log.warning("webhook_endpoint_disabled", endpoint_id=owed.endpoint_id)
        try:
            await self.endpoints.disable(owed.endpoint_id, "it answered 410 (gone)")
        except WebhookNotFound:
            return  # somebody has removed it
