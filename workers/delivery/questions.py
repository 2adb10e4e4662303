"""What tools ask people, and how long they sleep, from the worker's side: stored, waited for, or left until then.

A call whose tool has made a checkpoint leaves its worker until it is answered, or its time has come; any other waits in
its place, and looks with all others that wait. Decides nothing about an answer but whether one of ours has given it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, cast

import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.call_news import FIELD, Asks, close_news
from toolfleet.calls import ToolCall
from toolfleet.context import Context
from toolfleet.errors import BadQuestion, BadSleep
from toolfleet.keys import CLAIM_GRACE_S, REPLIES_MAX, REPLIES_TTL_S, Keys
from toolfleet.outages import until_redis_is_back
from toolfleet.points import Point, reached
from toolfleet.questions import MAX_QUESTIONS, Answerless, Question, Said
from toolfleet.questions_kept import QUESTION, SAID, SLEEP, SealedQuestions
from toolfleet.replies import ROOM
from toolfleet.scripts import lua
from toolfleet.sleeping import MAX_SLEEPS, Sleep, must_end_in_time
from toolfleet.streams import GROUP
from toolfleet.supervision import run_errand
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.checkpoints import Checkpoints
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.newest import SendingLoop
from toolfleet.workers.delivery.postpone import home
from toolfleet.workers.tool.time_limit import standing_still

PARK: Final = lua(__package__, "park_question", before=ROOM)

FIRST_LOOK_S: Final = 0.1
LAST_LOOK_S: Final = 1.0
"""How soon a call that waits in its place looks whether it is answered: at first, and after a while."""

EXPIRED_KEPT_S: Final = 24 * 3600
"""Where nothing else of a question is left, that it has expired is kept so long."""

MAX_LOOKS: Final = 500
"""Calls that look with one command."""


class Attempt(NamedTuple):
    """One attempt at a call, as its worker knows it."""

    delivery: Delivery
    call: ToolCall
    tool: Tool[..., Any]


def attempt_of(context: Context) -> Attempt:
    """Return what the worker knows of a context's attempt."""
    return cast("Attempt", context.attempted)


class Questions:
    """Asks for the tools of one worker, from the event loop that sends."""

    def __init__(
        self,
        loop: SendingLoop,
        client: redis.asyncio.Redis,
        keys: Keys,
        seal: Seal,
        checkpoints: Checkpoints,
        *,
        is_tools_loop: bool,
    ) -> None:
        """`client` belongs to `loop`, which no tool may block. `is_tools_loop`: async tools run on it, with clocks."""
        self._loop = loop
        self._client = client
        self._keys = keys
        self._seal = seal
        self._sealed = SealedQuestions(keys, seal)
        self._checkpoints = checkpoints
        self._own_thread = threading.get_ident() if is_tools_loop else None
        self._park = client.register_script(PARK)
        self._looks: Batcher[tuple[str, str], bytes | None] = Batcher(self._look, max_batch=MAX_LOOKS)

    def put(self, context: Context, question: Question | Sleep, is_blocking: bool) -> Future[Said]:  # noqa: FBT001  # as given
        """Ask, or sleep. What is returned has what was said, or raises Answerless where the attempt is to end here.

        `is_blocking`: whoever asks blocks their thread until then. Raises BadQuestion on the thread that would ask.
        """
        if is_blocking and threading.get_ident() == self._own_thread:
            raise BadQuestion(
                f"{context.tool} is a coroutine: `await ctx.ask(…)` or `ctx.sleep(…)`, as blocking would block its loop"
            )
        said: Future[Said] = Future()
        self._loop.call_soon_threadsafe(self._begin, context, question, said)
        return said

    async def leave(self, delivery: Delivery, call: ToolCall, question: Question | Sleep) -> bool:
        """Let a call wait where no worker has it. Returns False if it is another worker's by now.

        Waits for Redis however long it is away.
        """
        # First: an answer may bring the call back at once, and it goes on from there.
        await self._checkpoints.written(call.call_id)
        reached(Point.LEAVING, call.call_id)
        queue, level = home(self._keys, delivery)
        asked, cancelled = self._keys.questions(call.call_id), self._keys.cancelled(call.call_id)
        where = [delivery.stream, self._keys.scheduled(queue), asked, cancelled]
        place: list[str | int] = [GROUP, delivery.consumer, delivery.entry_id, self._keys.queue(queue, level), queue]
        wait_ms = max(0, int((question.expires_unix_s - time.time()) * 1000))
        whose: list[str | int] = [call.call_id, call.tenant, call.run_id, int(call.deadline_unix_s * 1000)]

        args = [*place, wait_ms, self._keys.claim(""), *whose, f"{SAID}{question.key}"]
        is_ours: Future[bool] = Future()
        # On the loop of its connection, which in a process of a pool is not this one.
        self._loop.call_soon_threadsafe(lambda: run_errand("parking", self._leave(where, args, is_ours)))
        return await asyncio.wrap_future(is_ours)

    async def _leave(self, where: list[str], args: list[str | int], is_ours: Future[bool]) -> None:
        async def park() -> bool:
            return bool(await self._park(keys=where, args=args))

        try:
            parked = await until_redis_is_back(park)
        except BaseException as error:  # noqa: BLE001  # whoever waits is told, whatever it was
            if not is_ours.cancelled():
                is_ours.set_exception(error)
        else:
            if not is_ours.cancelled():
                is_ours.set_result(parked)

    def _begin(self, context: Context, question: Question | Sleep, said: Future[Said]) -> None:
        errand = run_errand("question", self._answer(context, question, said))
        said.add_done_callback(lambda _: self._loop.call_soon_threadsafe(errand.cancel))

    async def _answer(self, context: Context, question: Question | Sleep, told: Future[Said]) -> None:
        try:
            if isinstance(question, Sleep):
                said = await self._slept(context, question)
            else:
                said = await self._said(context, question)
        except asyncio.CancelledError:
            told.cancel()
            raise
        except BaseException as error:  # noqa: BLE001  # whoever asked is told, whatever it was
            if not told.cancelled():
                told.set_exception(error)
        else:
            if not told.cancelled():
                told.set_result(said)

    async def _said(self, context: Context, asked: Question) -> Said:
        question, said = await until_redis_is_back(lambda: self._stored(asked))
        if said is not None:
            return said
        if question is asked:
            await until_redis_is_back(lambda: self._ask(context, question))
            reached(Point.QUESTION_STORED, question.call_id)
        if question.expires_unix_s <= time.time():
            return await until_redis_is_back(lambda: self._expire(question))
        if self._may_leave(context):
            raise Answerless(question)
        with standing_still(context) if self._own_thread is not None else nullcontext():
            return await self._wait(question)

    async def _slept(self, context: Context, wanted: Sleep) -> Said:
        """Return when a sleep has ended that began when its call came there first."""
        sleep = await until_redis_is_back(lambda: self._begun(context, wanted))
        left_s = sleep.expires_unix_s - time.time()
        if left_s > 0:
            if self._may_leave(context):
                raise Answerless(sleep)
            with standing_still(context) if self._own_thread is not None else nullcontext():
                await asyncio.sleep(left_s)
        return Said(expired=True)

    async def _begun(self, context: Context, wanted: Sleep) -> Sleep:
        """Return the sleep as it was begun first. Raises BadSleep for one too many, or beyond the deadline."""
        key, field = self._keys.questions(wanted.call_id), f"{SLEEP}{wanted.key}"
        found = await cast("Awaitable[bytes | None]", self._client.hget(key, field))
        if (begun := self._sealed.open_sleep(found, wanted.call_id, wanted.key)) is not None:
            return begun
        must_end_in_time(context, wanted)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hset(key, field, cast("str", self._sealed.close_sleep(wanted)))  # the call is ours: nobody else does
        pipeline.expireat(key, int(context.deadline_unix_s) + CLAIM_GRACE_S)
        pipeline.hlen(key)
        *_, count = await pipeline.execute()
        if count > MAX_SLEEPS + 2 * MAX_QUESTIONS:
            raise BadSleep(f"{context.tool} has slept {MAX_SLEEPS} times in this call, and sleeps again")
        return wanted

    def _may_leave(self, context: Context) -> bool:
        """Whether the call goes on from a checkpoint, and so need not stay here while it waits."""
        delivery, call, _ = attempt_of(context)
        return bool(delivery.stream) and call.undoes is None and self._checkpoints.has(call.call_id)

    async def _stored(self, asked: Question) -> tuple[Question, Said | None]:
        """Return the question as it was asked first, and what was said to it. Raises BadQuestion."""
        fields = [f"{QUESTION}{asked.key}", f"{SAID}{asked.key}"]
        found = cast("Awaitable[list[bytes | None]]", self._client.hmget(self._keys.questions(asked.call_id), fields))
        sealed, answer = await found
        question = self._sealed.open(sealed, asked.call_id, asked.key)
        if question is None:
            return asked, None
        said = self._sealed.open_said(answer, question)
        if question.is_same(asked):
            return question, said
        if said is None:
            return asked, None  # who answers from now on reads the new words
        raise BadQuestion(
            f"{asked.tool} asks {asked.message:.200!r} where an earlier attempt asked {question.message:.200!r}, "
            "which is answered: ask the same in the same order, or give each question a key of its own"
        )

    async def _ask(self, context: Context, question: Question) -> None:
        """Store a question, and tell whoever looks on."""
        keys, call_id = self._keys, question.call_id
        of_call, of_tenant = keys.questions(call_id), keys.questions_of(question.tenant)
        ends_unix_s = int(context.deadline_unix_s) + CLAIM_GRACE_S
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hset(of_call, f"{QUESTION}{question.key}", self._sealed.close(question))
        pipeline.hdel(of_call, f"{SAID}{question.key}")  # nobody of ours has said it
        pipeline.expireat(of_call, ends_unix_s)
        pipeline.zadd(of_tenant, {call_id: int(question.asked_unix_s * 1000)}, nx=True)
        pipeline.expireat(of_tenant, ends_unix_s, nx=True)
        pipeline.expireat(of_tenant, ends_unix_s, gt=True)
        replies = keys.replies(attempt_of(context).call.reply_to)
        told: dict[Any, Any] = {"c": call_id, FIELD: close_news(self._seal, Asks(question=question), call_id)}
        pipeline.xadd(replies, told, maxlen=REPLIES_MAX, approximate=True)
        pipeline.expire(replies, REPLIES_TTL_S)
        await pipeline.execute()

    async def _wait(self, question: Question) -> Said:
        """Look until somebody has said something, or the question expires."""
        pause_s = FIRST_LOOK_S
        while (left_s := question.expires_unix_s - time.time()) > 0:
            await asyncio.sleep(min(pause_s, left_s))
            answer = await self._looks.add((question.call_id, f"{SAID}{question.key}"))
            if (said := self._sealed.open_said(answer, question)) is not None:
                return said
            pause_s = min(1.5 * pause_s, LAST_LOOK_S)
        return await until_redis_is_back(lambda: self._expire(question))

    async def _look(self, wanted: Sequence[tuple[str, str]]) -> Sequence[bytes | None]:
        async def look() -> list[bytes | None]:
            pipeline = self._client.pipeline(transaction=False)
            for call_id, field in wanted:
                pipeline.hget(self._keys.questions(call_id), field)
            found: list[bytes | None] = await pipeline.execute()
            return found

        return await until_redis_is_back(look)

    async def _expire(self, question: Question) -> Said:
        """Say that nobody has answered in time, unless somebody has in the last moment. Returns what counts."""
        key, field = self._keys.questions(question.call_id), f"{SAID}{question.key}"
        expired = Said(expired=True, said_unix_s=time.time())
        while True:
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hsetnx(key, field, cast("str", self._sealed.close_said(expired, question)))
            pipeline.expireat(key, int(question.expires_unix_s) + EXPIRED_KEPT_S, nx=True)
            is_ours, _ = await pipeline.execute()
            if is_ours:
                return expired
            answer = await cast("Awaitable[bytes | None]", self._client.hget(key, field))
            if (said := self._sealed.open_said(answer, question)) is not None:
                return said
            await self._client.hdel(key, field)  # nobody of ours has said it
