"""Finds what running tools ask people, for tenants that have endpoints: workers know nothing of webhooks.

The index of questions says which calls ask; what each asks is sealed. A question is told of once, whoever finds it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final, cast

import redis.asyncio

from toolfleet.calls import run_of
from toolfleet.errors import CallerError
from toolfleet.keys import Keys
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.webhooks.notices import notice_of_question
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.orchestrator.webhooks.owing import Owing
from toolfleet.questions_kept import QUESTION, SAID, SealedQuestions
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

LOOKED_AT: Final = 200
"""Calls that are looked at with one command."""

LOOK_EVERY_S: Final = 2.0

KNOWN_MAX: Final = 50_000


class AskedQuestions:
    """Owes webhooks of questions. Raises StoreUnreachable."""

    def __init__(
        self, client: redis.asyncio.Redis, keys: Keys, seal: Seal, *, store: RunStore, owing: Owing, outbox: Outbox
    ) -> None:
        self._client = client
        self._keys = keys
        self._sealed = SealedQuestions(keys, seal)
        self._store = store
        self._owing = owing
        self._outbox = outbox
        self._known: dict[str, float] = {}
        """Questions that were looked at here, and when each expires."""
        self._looked_s = float("-inf")

    async def look(self) -> None:
        """Look at what is asked now, every few seconds."""
        if time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s, now = time.monotonic(), time.time()
        self._known = {name: until for name, until in self._known.items() if until > now}
        for tenant in {each.tenant for each in self._owing.endpoints.values() if not each.disabled}:
            listed = await self._client.zrevrange(self._keys.questions_of(tenant), 0, KNOWN_MAX - 1)
            names = [text_of(each) for each in cast("list[bytes]", listed)]
            for at in range(0, len(names), LOOKED_AT):
                await self._look_at(tenant, names[at : at + LOOKED_AT])

    async def _look_at(self, tenant: str, call_ids: Sequence[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call_id in call_ids:
            pipeline.hkeys(self._keys.questions(call_id))
        for call_id, fields in zip(call_ids, await pipeline.execute(), strict=True):
            names = {text_of(field) for field in fields}
            for name in names:
                key = name.removeprefix(QUESTION)
                is_open = name.startswith(QUESTION) and f"{SAID}{key}" not in names
                if is_open and f"{call_id}\0{key}" not in self._known:
                    await self._tell(tenant, call_id, key)

    async def _tell(self, tenant: str, call_id: str, key: str) -> None:
        reply = self._client.hget(self._keys.questions(call_id), f"{QUESTION}{key}")
        question = self._sealed.open(await cast("Awaitable[bytes | None]", reply), call_id, key)
        now = time.time()
        self._known[f"{call_id}\0{key}"] = now + LOOK_EVERY_S if question is None else question.expires_unix_s
        if question is None or question.tenant != tenant or question.expires_unix_s <= now:
            return
        run_id, named = await self._run_above(question.run_id)
        notice = notice_of_question(question, run_id)
        of = f"{question.question_id}\0{question.asked_unix_s}"
        owed = self._owing.messages(notice, of=of, about=question.call_id, tenant=tenant, named=named)
        if owed:
            name = f"{question.question_id} {question.asked_unix_s}"
            await self._outbox.owe(owed, question=name, tenant=tenant, expires_unix_s=question.expires_unix_s)

    async def _run_above(self, run_id: str) -> tuple[str, str]:
        """The run that stands above all of one, and the endpoint that it names, "" for none.

        A call of no stored run has the run that it says.
        """
        named = ""
        with suppress(CallerError, NewerVersion):
            while (run := (await self._store.load(run_id)).run).parent_call_id is not None:
                run_id = run_of(run.parent_call_id)
            named = run.terms.webhook or ""
        return run_id, named
