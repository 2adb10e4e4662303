"""What people say to the questions of tools that run: looked at, written down, and given to the tool, all or nothing.

Anybody may answer for any run; the first answer counts. Where the call waits elsewhere, it comes back with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from toolfleet.calls import run_of
from toolfleet.keys import Keys
from toolfleet.orchestrator.errors import (
    AmbiguousId,
    IllegalTransition,
    InvalidAnswer,
    QuestionClosed,
    QuestionNotFound,
    RunNotFound,
)
from toolfleet.orchestrator.run.events import Answered, QuestionAnswered
from toolfleet.orchestrator.status.questions import Asked, Questions
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.points import Point, reached
from toolfleet.questions import MAX_ANSWER_BYTES, Question, Said, faults_of, named
from toolfleet.questions_kept import AT_ONCE, PARKED, SAID, SealedQuestions
from toolfleet.settings import Settings
from toolfleet.strict_json import read_json
from toolfleet.wire import Seal


@dataclass(frozen=True, slots=True)
class DirectAnswers:
    """Answers questions by their ids. Raises StoreUnreachable."""

    client: redis.asyncio.Redis
    keys: Keys
    sealed: SealedQuestions
    questions: Questions
    store: RunStore

    @classmethod
    def through(cls, client: redis.asyncio.Redis, settings: Settings, seal: Seal, store: RunStore) -> DirectAnswers:
        """Make one for a connection."""
        keys = settings.keys
        return cls(client, keys, SealedQuestions(keys, seal), Questions(client, settings, seal, store), store)

    async def find(self, question_id: str) -> Question:
        """Return the question that is meant: by its id, or by that of a call that asks one thing only.

        Raises QuestionNotFound, AmbiguousId.
        """
        return (await self._find(question_id)).question

    async def answer(self, question_id: str, answer: str | None, *, reason: str = "", by: str = "") -> Question:
        """Answer a question with a JSON text, or decline it with None; returns the question.

        Raises QuestionNotFound, AmbiguousId, QuestionClosed for one that is answered, has expired, or whose call has
        ended, InvalidAnswer.
        """
        tried: list[Said] = []
        while True:
            asked = await self._find(question_id)
            question = asked.question
            if asked.said in tried:  # it was written, and the connection lost with the word of that
                await self.store.confirm()
                await self.store.notify(run_of(question.call_id))
                return question
            _must_be_open(asked)
            # Whatever its call asks by the time of another try, this one was meant.
            question_id = question.question_id
            if answer is not None:
                _must_fit(answer, question)
            said = Said(answer=answer, declined=answer is None, reason=reason, by=by, said_unix_s=round(time.time(), 3))
            tried.append(said)
            if await self._write(asked, said):
                reached(Point.ANSWER_STORED, question.call_id)
                return question

    async def _find(self, question_id: str) -> Asked:
        call_id, key = named(question_id)
        asked = await self.questions.of_call(call_id)
        if key:
            asked = [each for each in asked if each.question.key == key]
        elif still := [each for each in asked if each.said is None]:
            asked = still
        if not asked:
            raise QuestionNotFound(f"no call asks {question_id}: its id is wrong, or its call ended long ago")
        if len(asked) > 1:
            ids = ", ".join(each.question.question_id for each in asked)
            raise AmbiguousId(f"call {call_id} asks several things, name one: {ids}")
        return asked[0]

    async def _write(self, asked: Asked, said: Said) -> bool:
        """Write an answer down and give it to the call. Returns whether that is done: others may be at it, too."""
        run_id = run_of(asked.question.call_id)
        try:
            stored = await self.store.load_to_write(run_id)
        except RunNotFound:  # a single call's run is not stored
            return await self._give(asked, said)
        event = QuestionAnswered(call_id=asked.question.call_id, answered=_answered(asked.question, said))
        try:
            run = stored.run.on(event)
        except IllegalTransition as error:
            await self._heal(asked, stored.run.asked_for(asked.question.call_id))
            raise QuestionClosed(f"{error}: nothing is answered any more") from None

        async def besides(pipeline: Any) -> bool:
            return await self._queue(pipeline, asked, said)

        watched = self.keys.questions(asked.question.call_id)
        if not await self.store.append_with(run, event, follows=stored.link, watching=watched, besides=besides):
            return False
        await self.store.notify(run_id)
        return True

    async def _give(self, asked: Asked, said: Said) -> bool:
        """Give an answer to a call whose run is not stored."""
        if not await self.questions.is_wanted(asked.question.call_id):
            raise QuestionClosed(f"call {asked.question.call_id} has ended: nothing is answered any more")
        async with self.client.pipeline(transaction=True) as pipeline:
            try:
                await pipeline.watch(self.keys.questions(asked.question.call_id))
                if not await self._queue(pipeline, asked, said):
                    return False
                await pipeline.execute()
            except redis.WatchError:  # also where the connection was lost: then nobody knows
                return False
            return True

    async def _queue(self, pipeline: Any, asked: Asked, said: Said) -> bool:
        """Queue what gives the answer to the call, unless what stands there is not what was seen before."""
        key, field = self.keys.questions(asked.question.call_id), f"{SAID}{asked.question.key}"
        found, parked = await pipeline.hmget(key, [field, PARKED])
        if (found, parked) != (asked.found, asked.parked):
            return False
        pipeline.multi()
        pipeline.hset(key, field, self.sealed.close_said(said, asked.question))
        if asked.parked is not None:
            # One that came back by itself meanwhile is no longer there, and is not brought back.
            pipeline.zadd(self.keys.scheduled(asked.queue), {asked.parked: AT_ONCE}, xx=True)
        return True

    async def _heal(self, asked: Asked, call: Any) -> None:
        """Give an answer again that the history has and the call has not: the store may have come back older."""
        key = asked.question.key
        written = next((each for each in call.answers if each.key == key), None) if call is not None else None
        if written is None or asked.said is not None or written.question != asked.question.message:
            return
        declined = written.answer is None
        said = Said(answer=written.answer, declined=declined, reason=written.reason, by=written.by)
        await self._give(asked, said)


def _must_be_open(asked: Asked) -> None:
    question, said = asked.question, asked.said
    if said is not None and not said.expired:
        who = f" by {said.by}" if said.by else ""
        raise QuestionClosed(f"question {question.question_id} is answered already{who}")
    if said is not None or time.time() >= question.expires_unix_s:
        raise QuestionClosed(f"question {question.question_id} has expired")


def _must_fit(answer: str, question: Question) -> None:
    if len(answer) > MAX_ANSWER_BYTES:
        raise InvalidAnswer(f"the answer has {len(answer)} characters, and at most {MAX_ANSWER_BYTES} are taken")
    try:
        value = read_json(answer)
    except ValueError as error:
        raise InvalidAnswer(f"the answer is no JSON: {error}") from None
    if faults := faults_of(value, question.schema_):
        raise InvalidAnswer(f"the answer does not fit: {'; '.join(faults)}")


def _answered(question: Question, said: Said) -> Answered:
    return Answered(
        key=question.key,
        question=question.message,
        answer=said.answer,
        reason=said.reason,
        by=said.by,
        asked_unix_s=question.asked_unix_s,
    )
