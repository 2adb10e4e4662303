"""What tools ask people and nobody has answered yet: of all calls of a tenant, or of one. By an index, no search.

What is believed is sealed; the index is a hint, and what nothing waits for any more leaves it when it is read.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple, Self, cast

import redis.asyncio
from pydantic import Field

from toolfleet.calls import Record, run_of
from toolfleet.errors import CallerError
from toolfleet.orchestrator.errors import NewerVersion, RunNotFound
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_pages import place_in
from toolfleet.orchestrator.store.run_store import RunStore, title_of
from toolfleet.questions import Question, Said
from toolfleet.questions_kept import PARKED, QUESTION, QUEUE, SAID, SealedQuestions
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

UNLIST: Final = lua(__package__, "unlist_question")

LOOKED_AT: Final = 200
"""Calls of the index that are looked at with one command."""


class AwaitedAnswer(Record):
    """A question that waits for a person; or a call with some that cannot be read."""

    question_id: str
    """What it is answered under."""
    call_id: str
    run_id: str
    tool: str = ""
    message: str = ""
    answer_schema: dict[str, Any] = Field(default_factory=dict)
    """The JSON Schema of what may be answered."""
    asked_unix_s: float = 0.0
    expires_unix_s: float = 0.0
    title: str = ""
    """What its run was asked, shortened; empty for a call of no stored run."""

    @classmethod
    def of(cls, question: Question, title: str = "") -> Self:
        """Return what is told of a question."""
        return cls(
            question_id=question.question_id,
            call_id=question.call_id,
            run_id=question.run_id,
            tool=question.tool,
            message=question.message,
            answer_schema=question.schema_,
            asked_unix_s=question.asked_unix_s,
            expires_unix_s=question.expires_unix_s,
            title=title,
        )


class QuestionPage(NamedTuple):
    """Some questions, and what the next page is asked for with; empty when there is none."""

    waiting: list[AwaitedAnswer]
    after: str


class Asked(NamedTuple):
    """One question of a call, and what stands in Redis beside it."""

    question: Question
    said: Said | None
    found: bytes | None
    """What stands where the answer belongs, whether it can be believed or not."""
    parked: bytes | None
    queue: str

    def is_open(self, now_unix_s: float) -> bool:
        """Whether it can be answered."""
        return self.said is None and now_unix_s < self.question.expires_unix_s


class Questions:
    """Reads what waits for an answer. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, store: RunStore) -> None:
        self._client = client
        self._keys = settings.keys
        self._sealed = SealedQuestions(settings.keys, seal)
        self._store = store
        self._unlist = client.register_script(UNLIST)

    async def waiting(self, *, tenant: str, limit: int, after: str = "") -> QuestionPage:
        """Return the questions of so many calls, those first that have waited longest. Raises BadCursor."""
        score, last = place_in(after)
        waiting: list[AwaitedAnswer] = []
        calls, offset = 0, 0
        while True:
            found_now = await self._client.zrangebyscore(
                self._keys.questions_of(tenant), score or "-inf", "+inf", start=offset, num=LOOKED_AT, withscores=True
            )
            listed = cast("list[tuple[bytes, float]]", found_now)
            for name, since_ms in listed:
                call_id, since = text_of(name), f"{since_ms:.0f}"
                if last and (since, call_id) <= (score, last):
                    continue
                found = await self.waiting_for(call_id, tenant=tenant)
                if not found:
                    await self._unlist(keys=[self._keys.questions_of(tenant)], args=[call_id, since])
                    continue
                waiting += found
                calls += 1
                if calls == limit:
                    return QuestionPage(waiting, f"{since}_{call_id}")
            if len(listed) < LOOKED_AT:
                return QuestionPage(waiting, "")
            offset += LOOKED_AT

    async def count(self, *, tenant: str) -> int:
        """Return how many calls ask something, of the 200 that have waited longest: no run is read for it."""
        names = await self._client.zrange(self._keys.questions_of(tenant), 0, LOOKED_AT - 1)
        now_unix_s, asking = time.time(), 0
        for call_id in map(text_of, cast("list[bytes]", names)):
            is_open = any(each.is_open(now_unix_s) for each in await self.of_call(call_id))
            asking += is_open and await self.is_wanted(call_id)
        return asking

    async def of_run(self, run_id: str, *, tenant: str) -> list[AwaitedAnswer]:
        """Return what the calls of a run ask, and those of its agents' runs: their ids begin with its own."""
        waiting: list[AwaitedAnswer] = []
        offset = 0
        while True:
            until = offset + LOOKED_AT - 1
            names = cast("list[bytes]", await self._client.zrange(self._keys.questions_of(tenant), offset, until))
            for call_id in map(text_of, names):
                if call_id.startswith(f"{run_id}."):
                    waiting += await self.waiting_for(call_id, tenant=tenant)
            if len(names) < LOOKED_AT:
                return waiting
            offset += LOOKED_AT

    async def of_call(self, call_id: str) -> list[Asked]:
        """Return all that a call has asked, in no order, answered or not."""
        reply = self._client.hgetall(self._keys.questions(call_id))
        stored = await cast("Awaitable[dict[bytes, bytes]]", reply)
        asked = []
        for field, sealed in stored.items():
            name = text_of(field)
            if not name.startswith(QUESTION):
                continue
            key = name.removeprefix(QUESTION)
            if (question := self._sealed.open(sealed, call_id, key)) is not None:
                found = stored.get(f"{SAID}{key}".encode())
                said = self._sealed.open_said(found, question)
                queue = text_of(stored.get(QUEUE.encode(), b""))
                asked.append(Asked(question, said, found, stored.get(PARKED.encode()), queue))
        return asked

    async def waiting_for(self, call_id: str, *, tenant: str) -> list[AwaitedAnswer]:
        """Return what a tenant's call asks and nobody has answered, the oldest first; nothing once it has ended."""
        now_unix_s = time.time()
        asked = [
            each.question
            for each in await self.of_call(call_id)
            if each.question.tenant == tenant and each.is_open(now_unix_s)
        ]
        if not asked:
            return []
        run = await self._run_of(call_id)
        if not await self._goes_on(call_id, run):
            return []
        title = "" if run is None else title_of(run.messages)
        return [AwaitedAnswer.of(question, title) for question in sorted(asked, key=lambda each: each.asked_unix_s)]

    async def _run_of(self, call_id: str) -> Run | None:
        """Return the run of a call; None where it is not stored, or cannot be read."""
        try:
            return (await self._store.load(run_of(call_id))).run
        except RunNotFound:
            return None
        except (CallerError, NewerVersion):
            return None

    async def _goes_on(self, call_id: str, run: Run | None) -> bool:
        """Return whether a call has not ended, as far as is known."""
        if run is not None:
            call = run.asked_for(call_id)
            if call is None or run.state.is_terminal or not (call.result is None or call.is_slow_and_open):
                return False
        return await self.is_wanted(call_id)

    async def is_wanted(self, call_id: str) -> bool:
        """Return whether a call has neither a result that is still stored, nor been called off."""
        [result] = await self._store.results([call_id])
        return result is None and not await self._client.exists(self._keys.cancelled(call_id))
