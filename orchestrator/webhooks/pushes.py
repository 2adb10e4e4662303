"""The configurations of tasks in Redis, and what is owed for them: beside the run, and for as long as it is kept.

Each is sealed for its run and its id, its secrets unreadable without that of the fleet. Which tasks have something to
tell stands in Redis as a hint: what is told of them, and to whom, is sealed.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.errors import Refused
from toolfleet.orchestrator.errors import InvalidWebhook, RunNotFound, WebhookNotFound
from toolfleet.orchestrator.store.run_store import OWE, not_stored
from toolfleet.orchestrator.webhooks.addresses import addresses_of, checked_url
from toolfleet.orchestrator.webhooks.push_records import CONFIGS_MAX, TASKS_MAX, PushConfig, Secrets, checked_secrets
from toolfleet.orchestrator.webhooks.records import Owed
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

KEEP: Final = lua(__package__, "keep_push", before=CLOCK)
DROP: Final = lua(__package__, "drop_push")
TAKE: Final = lua(__package__, "take_pushes", before=CLOCK)
OWE_PUSH: Final = lua(__package__, "owe_push", before=f"{CLOCK}\n{OWE}")

TOLD_CHARS: Final = 16
"""Of the digest of what a configuration was told last, which stands before it."""

UNTOLD: Final = "-" * TOLD_CHARS

TAKEN_AT_ONCE: Final = 50

LOOKED_AT: Final = 200

DEEPEST: Final = 64
"""So many runs above another one are looked at."""

LEASE_S: Final = 30.0
"""Longer than it takes to see what a task has to tell."""

NO_ROOM: Final = {
    "task": f"a task has {CONFIGS_MAX} push notification configurations at most: delete one first",
    "tenant": f"{TASKS_MAX} tasks with push notification configurations go on already: more are not allowed",
}


class Marked(NamedTuple):
    """A task that may have something to tell, taken to be looked at."""

    run_id: str
    taken_with: str


class Pushes:
    """The configurations of all tasks. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._keys = settings.keys
        self._seal = seal
        self._keep = client.register_script(KEEP)
        self._drop = client.register_script(DROP)
        self._take = client.register_script(TAKE)
        self._owe = client.register_script(OWE_PUSH)

    # --- for clients --------------------------------------------------------------------------------------------

    async def checked(self, config: PushConfig, *, token: str = "", credentials: str = "") -> PushConfig:
        """Return a configuration as it may be stored, with its secrets hidden.

        Raises InvalidWebhook for a URL that nothing is sent to, and for what is no header.
        """
        given = checked_secrets(token, config.scheme, credentials)
        url = checked_url(config.url)
        await addresses_of(url, self._settings.webhook_allowed)
        hidden = {"token": self._hidden(config, given.token), "credentials": self._hidden(config, given.credentials)}
        return config.model_copy(update={"url": str(url), **hidden})

    async def keep(self, config: PushConfig) -> None:
        """Store a configuration, in the place of one with its id, and have it told if its task asks or has ended.

        Raises InvalidWebhook where there are too many, RunNotFound where the run is kept no more.
        """
        keys, run_id, tenant = self._keys, config.run_id, config.tenant
        sealed = self._seal.close_kept(config.model_dump_json().encode(), self._place(run_id, config.config_id))
        reply = await self._keep(
            keys=[keys.head(run_id), keys.pushes(run_id), keys.pushing(tenant), keys.push_tenants(), keys.pushes_due()],
            args=[run_id, tenant, config.config_id, UNTOLD, sealed, CONFIGS_MAX, TASKS_MAX],
        )
        said = text_of(reply)
        if said in NO_ROOM:
            raise InvalidWebhook(NO_ROOM[said])
        if said == "gone":
            raise RunNotFound(not_stored(run_id))

    async def of_run(self, run_id: str) -> dict[str, PushConfig]:
        """Return a run's configurations by their ids, as far as one of ours has written them."""
        reply = cast("Awaitable[Mapping[bytes, bytes]]", self._client.hgetall(self._keys.pushes(run_id)))
        found = [self._opened(run_id, text_of(config_id), kept) for config_id, kept in (await reply).items()]
        return {each.config_id: each for each in sorted(filter(None, found), key=lambda each: each.config_id)}

    async def find(self, run_id: str, config_id: str) -> PushConfig:
        """Return one of them. Raises WebhookNotFound, Refused for one that is not believed here."""
        reply = self._client.hget(self._keys.pushes(run_id), config_id)
        kept = await cast("Awaitable[bytes | None]", reply)
        if kept is None:
            raise WebhookNotFound(f"run {run_id} has no push notification configuration {config_id[:100]!r}")
        if (config := self._opened(run_id, config_id, kept)) is None:
            raise Refused("unsigned or altered")
        return config

    async def drop(self, run_id: str, config_id: str, *, tenant: str) -> bool:
        """Take a configuration away: nothing is told there any more. Returns False where there was none."""
        keys = self._keys
        dropped = await self._drop(
            keys=[keys.head(run_id), keys.pushes(run_id), keys.pushing(tenant)], args=[run_id, config_id]
        )
        return bool(dropped)

    def secrets_of(self, config: PushConfig) -> Secrets:
        """Return what its receiver knows us by. Raises Refused."""
        return Secrets(self._revealed(config, config.token), self._revealed(config, config.credentials))

    # --- for who sees what there is to tell ---------------------------------------------------------------------

    async def asking(self) -> dict[str, frozenset[tuple[str, float]]]:
        """Return the tasks with configurations that may ask a person, each with what tells one look from another."""
        asking: dict[str, set[tuple[str, float]]] = {}
        for tenant in await self._tenants():
            for listed in (self._keys.approvals(tenant), self._keys.questions_of(tenant)):
                async for name, score in self._listed(listed):
                    for run_id in await self._pushed_above(name, tenant):
                        asking.setdefault(run_id, set()).add((name, score))
        return {run_id: frozenset(asks) for run_id, asks in asking.items()}

    async def _tenants(self) -> list[str]:
        found = await self._client.zrangebyscore(self._keys.push_tenants(), time.time() * 1000, "+inf")
        return [text_of(each) for each in cast("list[bytes]", found)]

    async def _listed(self, key: str) -> AsyncGenerator[tuple[str, float], None]:
        at = 0
        while found := await self._client.zrange(key, at, at + LOOKED_AT - 1, withscores=True):
            for name, score in cast("list[tuple[bytes, float]]", found):
                yield text_of(name), score
            at += LOOKED_AT

    async def _pushed_above(self, name: str, tenant: str) -> list[str]:
        """Return the tasks with configurations that a run or a call belongs to: their ids begin its own."""
        ends = [at for at, each in enumerate(name) if each == "."][:DEEPEST]
        above = [*(name[:at] for at in ends), name]
        scores = await self._client.zmscore(self._keys.pushing(tenant), above)
        return [run_id for run_id, score in zip(above, scores, strict=True) if score is not None]

    async def renew(self) -> None:
        """Keep configurations of runs that go on for long for as long as the runs are kept."""
        half_life_ms = self._settings.keep_unfinished_s * 500
        now = time.time() * 1000
        for tenant in await self._tenants():
            key = self._keys.pushing(tenant)
            found = await self._client.zrangebyscore(key, now, now + half_life_ms, start=0, num=LOOKED_AT)
            for run_id in cast("list[bytes]", found):
                await self._renew(text_of(run_id), tenant)

    async def _renew(self, run_id: str, tenant: str) -> None:
        keys, ttl_ms = self._keys, await self._client.pttl(self._keys.head(run_id))
        pipeline = self._client.pipeline(transaction=True)
        if ttl_ms <= 0:
            pipeline.zrem(keys.pushing(tenant), run_id)
        else:
            ends_ms = int(time.time() * 1000) + ttl_ms
            pipeline.pexpire(keys.pushes(run_id), ttl_ms)
            pipeline.zadd(keys.pushing(tenant), {run_id: ends_ms}, xx=True)
            pipeline.zadd(keys.push_tenants(), {tenant: ends_ms}, gt=True)
            pipeline.pexpire(keys.pushing(tenant), ttl_ms, gt=True)
            pipeline.pexpire(keys.push_tenants(), ttl_ms, gt=True)
        await pipeline.execute()

    async def has_any(self) -> bool:
        """Whether any task may have something to tell."""
        return bool(await self._client.exists(self._keys.pushes_due(), self._keys.push_tenants()))

    async def take(self) -> list[Marked]:
        """Take some of the tasks that may have something to tell; each comes up again unless `owe` lets go of it."""
        found = await self._take(keys=[self._keys.pushes_due()], args=[TAKEN_AT_ONCE, int(LEASE_S * 1000)])
        return [Marked(text_of(run_id), text_of(score)) for run_id, score in found]

    async def mark(self, run_ids: Sequence[str]) -> None:
        """Have these looked at."""
        if run_ids:
            # By nobody's clock: due at once, and before any that was put off.
            await self._client.zadd(self._keys.pushes_due(), dict.fromkeys(run_ids, 1))

    async def owe(
        self, marked: Marked, owed: Sequence[Owed], *, told: str = UNTOLD, tenant: str = "", has_ended: bool = False
    ) -> int:
        """Owe messages to configurations that were not told this yet, and let go of the task. Returns how many."""
        keys, seal = self._keys, self._seal
        count: int = await self._owe(
            keys=[
                *(keys.pushes(marked.run_id), keys.pushing(tenant), keys.pushes_due(), keys.webhooks_due()),
                *(keys.webhook(each.delivery_id) for each in owed),
            ],
            args=[
                *(marked.run_id, marked.taken_with, int(has_ended), told, int(self._settings.keep_webhooks_s * 1000)),
                *(
                    part
                    for each in owed
                    for part in (
                        each.config_id or "",
                        each.delivery_id,
                        seal.close_kept(each.model_dump_json().encode(), keys.webhook(each.delivery_id)),
                    )
                ),
            ],
        )
        return count

    # --- what is believed ---------------------------------------------------------------------------------------

    def _opened(self, run_id: str, config_id: str, kept: bytes) -> PushConfig | None:
        try:
            text = self._seal.open_kept(kept[TOLD_CHARS:], self._place(run_id, config_id))
            return PushConfig.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("push configuration", error, run_id=run_id[:80])
            return None

    def _hidden(self, config: PushConfig, secret: str) -> str:
        place = self._place(config.run_id, config.config_id)
        return base64.b64encode(self._seal.hide(secret.encode(), place)).decode() if secret else ""

    def _revealed(self, config: PushConfig, hidden: str) -> str:
        place = self._place(config.run_id, config.config_id)
        return self._seal.reveal(base64.b64decode(hidden), place).decode() if hidden else ""

    def _place(self, run_id: str, config_id: str) -> str:
        return f"{self._keys.pushes(run_id)}\0{config_id}"
