"""What is owed, in Redis: taken by one sender at a time, due again when it dies, given up, and put back by people.

All times are the server's. What stands there is sealed, so nobody makes messages up who has no more than Redis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.keys import WEBHOOK_ATTEMPTS_MAX, WEBHOOKS_DEAD_MAX
from toolfleet.orchestrator.errors import WebhookNotFound
from toolfleet.orchestrator.store.run_store import OWE
from toolfleet.orchestrator.webhooks.records import DeadWebhook, Owed, WebhookAttempt
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

R = TypeVar("R", bound=Record)

LEASE_OF_ATTEMPTS: Final = 4.0
"""How much longer than an attempt may take a sender has a message before it is due again: by default a minute."""

TAKE: Final = lua(__package__, "take_webhooks", before=CLOCK)
SETTLE: Final = lua(__package__, "settle_webhook", before=CLOCK)
REPLAY: Final = lua(__package__, "replay_webhook", before=CLOCK)
OWE_QUESTION: Final = lua(__package__, "owe_question", before=f"{CLOCK}\n{OWE}")

AT_ONCE_EACH: Final = 16
"""How many attempts at one endpoint a process makes at the same time: one that hangs leaves room for the others."""

LOOKED_AT: Final = 200
PUT_OFF_MS: Final = 250
"""What is put off because its endpoint is busy."""

What = Literal["over", "again", "dead"]


class Taken(NamedTuple):
    """A message that is ours to send now."""

    owed: Owed
    fence: int
    attempts: int
    """How often it was sent."""


class Due(NamedTuple):
    """What is to be sent now, the endpoints as they stand, and when to look again."""

    taken: list[Taken]
    endpoints: Mapping[bytes, bytes]
    next_in_s: float | None


class Outbox:
    """The webhooks of one fleet. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._keys = settings.keys
        self._seal = seal
        # A sender may be held up, too: for as long as any process before its lease lapses.
        self._lease_ms = int(max(LEASE_OF_ATTEMPTS * settings.webhook_timeout_s, settings.lease_s) * 1000)
        self._keep_ms = int(settings.keep_webhooks_s * 1000)
        self._take = client.register_script(TAKE)
        self._settle = client.register_script(SETTLE)
        self._replay = client.register_script(REPLAY)
        self._owe_question = client.register_script(OWE_QUESTION)

    # --- for senders --------------------------------------------------------------------------------------------

    async def endpoints(self) -> Mapping[bytes, bytes]:
        """Return the endpoints as they are stored."""
        return await cast("Awaitable[Mapping[bytes, bytes]]", self._client.hgetall(self._keys.webhooks()))

    async def has_any(self) -> bool:
        """Whether there is an endpoint, or anything owed: in one command, where there is neither."""
        return bool(await self._client.exists(self._keys.webhooks(), self._keys.webhooks_due()))

    async def take(self, most: int, busy: Mapping[str, int]) -> Due:
        """Take so many that are due, and look at the endpoints: one round trip. `busy`: who is being sent to."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hgetall(self._keys.webhooks())
        await self._take(
            keys=[self._keys.webhooks_due()],
            args=[
                *(most, self._lease_ms, self._keys.webhook(""), LOOKED_AT, AT_ONCE_EACH, PUT_OFF_MS),
                *(part for pair in busy.items() for part in pair),
            ],
            client=pipeline,
        )
        endpoints, (found, next_ms) = await pipeline.execute()
        taken = []
        for delivery_id, fence, attempts, sealed in found:
            owed = self._opened(Owed, self._keys.webhook(text_of(delivery_id)), sealed)
            if owed is None or owed.delivery_id != text_of(delivery_id):
                # Left to its lease: another process may have the secret that it is sealed with, until it ends.
                continue
            count = text_of(attempts)
            taken.append(Taken(owed, fence, int(count) if count.isdecimal() else 0))
        return Due(taken, endpoints, None if next_ms < 0 else next_ms / 1000)

    async def settle(
        self, taken: Taken, what: What, *, wait_s: float = 0.0, attempt: WebhookAttempt | None = None
    ) -> bool:
        """Note what came of a message: it is over, sent again, or dead. Returns False where it is another's by now."""
        keys, owed = self._keys, taken.owed
        attempts = keys.webhook_attempts(owed.endpoint_id)
        webhook = keys.webhook(owed.delivery_id)
        settled = await self._settle(
            keys=[keys.webhooks_due(), webhook, attempts, keys.webhooks_dead(owed.tenant)],
            args=[
                *(owed.delivery_id, taken.fence, what, int(wait_s * 1000)),
                # Sealed anew: a message may be older than the secret.
                self._closed(owed, webhook),
                b"" if attempt is None else self._closed(attempt, attempts),
                *(WEBHOOK_ATTEMPTS_MAX, self._keep_ms, WEBHOOKS_DEAD_MAX, keys.webhook("")),
            ],
        )
        return bool(settled)

    async def owe(self, owed: Sequence[Owed], *, question: str, tenant: str, expires_unix_s: float) -> int:
        """Owe messages of a question, unless that was done. Returns how many."""
        keys = self._keys
        texts = [(each.delivery_id, self._closed(each, keys.webhook(each.delivery_id))) for each in owed]
        owes: int = await self._owe_question(
            keys=[keys.webhooks_asked(tenant), keys.webhooks_due(), *(keys.webhook(name) for name, _ in texts)],
            args=[
                *(question, int(expires_unix_s * 1000), self._keep_ms),
                *(part for pair in texts for part in pair),
            ],
        )
        return owes

    # --- for people ---------------------------------------------------------------------------------------------

    async def attempts(self, endpoint_id: str, limit: int = 20) -> list[WebhookAttempt]:
        """Return the newest attempts at an endpoint."""
        key = self._keys.webhook_attempts(endpoint_id)
        found = await cast("Awaitable[list[bytes]]", self._client.lrange(key, 0, limit - 1))
        opened = [self._opened(WebhookAttempt, key, sealed) for sealed in found]
        return [each for each in opened if each is not None]

    async def dead(self, tenant: str, limit: int = 50) -> list[DeadWebhook]:
        """Return a tenant's messages that were given up, the newest first."""
        names = await self._client.zrevrange(self._keys.webhooks_dead(tenant), 0, limit - 1, withscores=True)
        listed = cast("list[tuple[bytes, float]]", names)
        pipeline = self._client.pipeline(transaction=False)
        for name, _ in listed:
            pipeline.hmget(self._keys.webhook(text_of(name)), ["m", "n", "last"])
        found: list[list[bytes | None]] = await pipeline.execute() if listed else []
        dead = []
        for (name, at_ms), (sealed, attempts, last) in zip(listed, found, strict=True):
            owed = self._opened(Owed, self._keys.webhook(text_of(name)), sealed)
            if owed is not None and owed.tenant == tenant:
                at = self._keys.webhook_attempts(owed.endpoint_id)
                count = text_of(attempts or b"")
                tried = int(count) if count.isdecimal() else 0
                dead.append(DeadWebhook(owed, tried, at_ms / 1000, self._opened(WebhookAttempt, at, last)))
        return dead

    async def replay(self, delivery_id: str, *, tenant: str) -> None:
        """Send a message again that was given up, from its first attempt on. Raises WebhookNotFound."""
        keys = self._keys
        replayed = await self._replay(
            keys=[keys.webhooks_due(), keys.webhook(delivery_id), keys.webhooks_dead(tenant)],
            args=[delivery_id, self._keep_ms],
        )
        if not replayed:
            raise WebhookNotFound(
                f"no webhook {delivery_id[:100]} was given up, or it is kept no more: see `toolfleet webhooks dead`"
            )

    # --- what is believed ---------------------------------------------------------------------------------------

    def _closed(self, record: Record, key: str) -> bytes:
        return self._seal.close_kept(record.model_dump_json().encode(), key)

    def _opened(self, kind: type[R], key: str, sealed: Any) -> R | None:
        if not sealed:
            return None
        try:
            return kind.model_validate_json(self._seal.open_kept(sealed, key), extra="ignore")
        except (Refused, ValidationError) as error:
            skip("webhook", error)
            return None
