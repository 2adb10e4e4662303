"""Which tasks belong to a context, and what a new one remembers of it.

Owns a list in Redis, as a hint: whose a run is, and of which context, its sealed history says, so who can write to
Redis may have a context forgotten and can put nothing into one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, cast

from toolfleet.messages import Message
from toolfleet.orchestrator.doors.a2a.shown import context_of
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.conversations import remembered
from toolfleet.skipped import text_of

MOST_TASKS: Final = 1000
"""How many tasks of a context are known, the newest."""

LOOKED_BACK: Final = 20
"""How many of them are looked at for the one that a new task goes on from."""


@dataclass(frozen=True, slots=True)
class Context:
    """The tasks of one context of a tenant. Raises StoreUnreachable."""

    door: Door
    grant: Grant
    context_id: str

    async def note(self, task_id: str) -> None:
        """Note a task that is about to begin."""
        pipeline = self.door.client.pipeline(transaction=False)
        pipeline.zadd(self._key, {task_id: int(time.time() * 1000)}, nx=True)
        pipeline.zremrangebyrank(self._key, 0, -MOST_TASKS - 1)
        settings = self.door.settings
        pipeline.expire(self._key, int(max(settings.keep_unfinished_s, settings.keep_done_s, settings.keep_failed_s)))
        await pipeline.execute()

    async def tasks(self, start: int, count: int) -> list[str]:
        """Return ids of its tasks, the newest first. Some may be stored no more."""
        found = await self.door.client.zrange(self._key, start, start + count - 1, desc=True)
        return [text_of(each) for each in cast("list[bytes]", found)]

    async def count(self) -> int:
        """Return how many are known."""
        return await self.door.client.zcard(self._key)

    async def said_before(self, task_id: str) -> tuple[Message, ...]:
        """Return what a new task goes on from: the conversation of the one that began last of those that have ended."""
        for earlier_id in await self.tasks(0, LOOKED_BACK):
            run = None if earlier_id == task_id else await self._theirs(earlier_id)
            if run is not None and run.state.is_terminal:
                return remembered(run, None)
        return ()

    async def _theirs(self, task_id: str) -> Run | None:
        try:
            run = (await self.door.looking.seen.load(task_id)).run
        except RunNotFound:
            return None
        return run if self.has(run) else None

    def has(self, run: Run) -> bool:
        """Whether a run is a task of it."""
        return run.terms.tenant == self.grant.tenant and context_of(run) == self.context_id

    @property
    def _key(self) -> str:
        whose = digest_of(self.grant.tenant.encode(), self.context_id.encode())
        return self.door.settings.keys.a2a_context(whose.hex())
