"""The endpoints of webhooks in Redis: each sealed for its id, its secret unreadable without that of the fleet.

So who has Redis and not the secret can neither read what receivers verify with nor have webhooks sent elsewhere.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.errors import Refused
from toolfleet.orchestrator.errors import InvalidWebhook, WebhookNotFound
from toolfleet.orchestrator.webhooks.addresses import addresses_of, checked_url
from toolfleet.orchestrator.webhooks.records import (
    ENDPOINT_PREFIX,
    SUBSCRIBABLE,
    Endpoint,
    HiddenSecret,
    WebhookEvent,
)
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import HIDDEN_BYTES, Seal

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # what secrets begin with

ENDPOINTS_MAX: Final = 50
"""Of one tenant: each is one more message for each event."""

DESCRIPTION_MAX: Final = 200

OVERLAP_S: Final = 24 * 3600.0
"""How long a secret that was replaced is signed with, too."""


class Endpoints:
    """Reads and writes them. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._key = settings.keys.webhooks()

    async def add(
        self,
        url: str,
        *,
        tenant: str = "",
        events: Sequence[WebhookEvent] = SUBSCRIBABLE,
        content: bool = False,
        description: str = "",
        by: str = "",
    ) -> tuple[Endpoint, str]:
        """Add an endpoint. Returns it with its secret, which is told here and never again. Raises InvalidWebhook."""
        checked = checked_url(url)
        if len(description) > DESCRIPTION_MAX:
            raise InvalidWebhook(f"the description has {len(description)} characters: {DESCRIPTION_MAX} are allowed")
        await addresses_of(checked, self._settings.webhook_allowed)
        own = [each for each in (await self.all()).values() if each.tenant == tenant]
        if same := [each for each in own if each.url == str(checked)]:
            raise InvalidWebhook(f"there is an endpoint with this URL already: {same[0].endpoint_id}")
        if len(own) >= ENDPOINTS_MAX:
            raise InvalidWebhook(f"there are {len(own)} endpoints already, and more are not allowed: remove one first")
        endpoint_id, secret = ENDPOINT_PREFIX + secrets.token_hex(8), secrets.token_bytes(HIDDEN_BYTES)
        endpoint = Endpoint(
            endpoint_id=endpoint_id,
            tenant=tenant,
            url=str(checked),
            events=tuple(events),
            content=content,
            description=description,
            secrets=(self._hidden(endpoint_id, secret),),
            created_unix_s=time.time(),
            by=by,
        )
        await self.put(endpoint)
        return endpoint, written(secret)

    async def all(self) -> dict[str, Endpoint]:
        """Return every endpoint by its id, as far as one of ours has written it."""
        reply = cast("Awaitable[Mapping[bytes, bytes]]", self._client.hgetall(self._key))
        return self.opened(await reply)

    def opened(self, stored: Mapping[bytes, bytes]) -> dict[str, Endpoint]:
        """Return what stands in the hash likewise."""
        found = (self._opened(text_of(endpoint_id), sealed) for endpoint_id, sealed in stored.items())
        return {each.endpoint_id: each for each in found if each is not None}

    async def of_tenant(self, tenant: str) -> list[Endpoint]:
        """Return a tenant's endpoints, the oldest first."""
        own = [each for each in (await self.all()).values() if each.tenant == tenant]
        return sorted(own, key=lambda each: (each.created_unix_s, each.endpoint_id))

    async def load(self, endpoint_id: str, *, tenant: str | None) -> Endpoint:
        """Return one endpoint of a tenant, or of any for None. Raises WebhookNotFound."""
        reply = cast("Awaitable[bytes | None]", self._client.hget(self._key, endpoint_id))
        sealed = await reply
        endpoint = None if sealed is None else self._opened(endpoint_id, sealed)
        if endpoint is None or tenant not in {None, endpoint.tenant}:
            raise WebhookNotFound(f"no endpoint has the id {endpoint_id[:80]}: `toolfleet webhooks list` has them")
        return endpoint

    async def named(self, named: str, *, tenant: str) -> Endpoint | None:
        """Return the endpoint of a tenant that has this id or this URL."""
        return next((each for each in await self.of_tenant(tenant) if named in {each.endpoint_id, each.url}), None)

    async def remove(self, endpoint_id: str, *, tenant: str | None) -> Endpoint:
        """Take an endpoint away; what is owed to it is not sent any more. Raises WebhookNotFound."""
        endpoint = await self.load(endpoint_id, tenant=tenant)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hdel(self._key, endpoint_id)
        pipeline.unlink(self._settings.keys.webhook_attempts(endpoint_id))
        await pipeline.execute()
        return endpoint

    async def rotate(
        self, endpoint_id: str, *, tenant: str | None, overlap_s: float = OVERLAP_S
    ) -> tuple[Endpoint, str]:
        """Give an endpoint a new secret; for a while, messages are signed with the one before it, too.

        Returns the new one, which is told here and never again. Raises WebhookNotFound.
        """
        secret = secrets.token_bytes(HIDDEN_BYTES)
        until = time.time() + overlap_s

        def rotated(endpoint: Endpoint) -> Endpoint:
            before = endpoint.secrets[0].model_copy(update={"until_unix_s": until})
            kept = (before,) if overlap_s > 0 else ()
            return endpoint.model_copy(update={"secrets": (self._hidden(endpoint_id, secret), *kept)})

        return await self._change(endpoint_id, tenant, rotated), written(secret)

    async def disable(self, endpoint_id: str, why: str) -> None:
        """Send nothing to an endpoint any more. Raises WebhookNotFound."""
        await self._change(endpoint_id, None, lambda endpoint: endpoint.model_copy(update={"disabled": why}))

    async def enable(self, endpoint_id: str, *, tenant: str | None) -> Endpoint:
        """Send to it again. Raises WebhookNotFound."""
        return await self._change(endpoint_id, tenant, lambda endpoint: endpoint.model_copy(update={"disabled": ""}))

    async def reseal(self, endpoint_id: str) -> None:
        """Seal it, and hide its secrets, with the fleet's present secret. Raises WebhookNotFound."""

        def anew(endpoint: Endpoint) -> Endpoint:
            hidden = [
                each.model_copy(update={"hidden": self._hidden(endpoint_id, self._revealed(endpoint_id, each)).hidden})
                for each in endpoint.secrets
            ]
            return endpoint.model_copy(update={"secrets": tuple(hidden)})

        await self._change(endpoint_id, None, anew)

    def secrets_of(self, endpoint: Endpoint) -> list[str]:
        """Return what messages are signed with now, the newest first."""
        now = time.time()
        good = [each for each in endpoint.secrets if each.until_unix_s is None or each.until_unix_s > now]
        return [written(self._revealed(endpoint.endpoint_id, each)) for each in good]

    async def _change(self, endpoint_id: str, tenant: str | None, change: Callable[[Endpoint], Endpoint]) -> Endpoint:
        changed: list[Endpoint] = []

        async def write(pipeline: Any) -> None:
            sealed = await pipeline.hget(self._key, endpoint_id)
            endpoint = None if sealed is None else self._opened(endpoint_id, sealed)
            if endpoint is None or tenant not in {None, endpoint.tenant}:
                raise WebhookNotFound(f"no endpoint has the id {endpoint_id[:80]}: `toolfleet webhooks list` has them")
            changed[:] = [change(endpoint)]
            pipeline.multi()
            pipeline.hset(self._key, endpoint_id, self._closed(changed[0]))

        await self._client.transaction(write, self._key)
        return changed[0]

    async def put(self, endpoint: Endpoint) -> None:
        """Store an endpoint as it is."""
        await self._client.hset(self._key, endpoint.endpoint_id, self._closed(endpoint))

    def _closed(self, endpoint: Endpoint) -> str:
        place = self._place(endpoint.endpoint_id)
        return self._seal.close_kept(endpoint.model_dump_json().encode(), place).decode()

    def _opened(self, endpoint_id: str, sealed: bytes) -> Endpoint | None:
        try:
            text = self._seal.open_kept(sealed, self._place(endpoint_id))
            return Endpoint.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("webhook endpoint", error, endpoint_id=endpoint_id[:80])
            return None

    def _hidden(self, endpoint_id: str, secret: bytes) -> HiddenSecret:
        hidden = self._seal.hide(secret, self._place(endpoint_id))
        return HiddenSecret(hidden=base64.b64encode(hidden).decode())

    def _revealed(self, endpoint_id: str, secret: HiddenSecret) -> bytes:
        return self._seal.reveal(base64.b64decode(secret.hidden), self._place(endpoint_id))

    def _place(self, endpoint_id: str) -> str:
        return f"{self._key}\0{endpoint_id}"


def written(secret: bytes) -> str:
    """Return a secret as receivers are given it."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()
