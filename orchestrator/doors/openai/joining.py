"""How a request becomes a run that it then follows, and how a repeat of it joins that run instead of beginning another.

| the request has | its repeats are | and join for |
|---|---|---|
| an `Idempotency-Key` | those with the same key, from the same tenant and subject | a day |
| `x-stainless-retry-count` | those with a count of 1 and more, the same body, path and API key | some minutes |
| neither | never known as such | |

Whoever may come back is given a moment to do so before a run that nobody listens to is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from fastapi import Request

from toolfleet.errors import CallerError, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.messages import Message
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.following import ABANDONED, Followed, Hear
from toolfleet.orchestrator.doors.http.idempotency import FirstRequest
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.live_replies import LiveReply
from toolfleet.orchestrator.doors.http.problems import NOT_AGAIN, Problem, path_of
from toolfleet.orchestrator.doors.http.request_ids import request_id_of
from toolfleet.orchestrator.doors.http.runs import admit
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.doors.openai.attendance import Attendance, Taken
from toolfleet.orchestrator.doors.openai.endings import must_have_worked
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import RunEnded, RunUpdate
from toolfleet.orchestrator.run.value import Run

log = FactLog("toolfleet.http")

RETRY_COUNT: Final = "x-stainless-retry-count"
MAX_DIGITS: Final = 6

FIRST_NEWS_S: Final = 10.0
"""How long a stream waits with its head for the first word: what is told in the head can be a status."""


@dataclass(slots=True)
class Attended:
    """One request that attends to its run, until it is answered or its client has left."""

    door: Door
    followed: Followed
    attendance: Attendance | None
    """Where its repeats are looked for; None for a client that does not say when it repeats something."""
    is_repeat: bool
    is_answered: bool = False

    @property
    def run_id(self) -> str:
        """The run that answers it."""
        return self.followed.run_id

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says of itself."""
        return {"idempotency-replayed": "true"} if self.is_repeat else {}

    async def first_news(self, request: Request) -> None:
        """Wait, for a moment, until the run is seen to go on. Raises Problem for one that has failed at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_NEWS_S):
                await unless_left(request, self.followed.until_news())
        if (run := self.followed.ended) is not None:
            self.is_answered = True
            must_have_worked(run)

    async def updates(self) -> AsyncGenerator[RunUpdate, None]:
        """Yield all that happens to the run from its beginning, `RunEnded` last."""
        async with aclosing(self.followed.updates()) as updates:
            async for update in updates:
                self.is_answered = isinstance(update, RunEnded)
                yield update

    def answered(self) -> None:
        """Say that the client has what it asked for, though the run goes on."""
        self.is_answered = True

    def close(self) -> None:
        """Leave the run, as its client has: nobody else may be there for it."""
        followings = self.door.followings
        followings.leave(self.followed, for_good=self.is_answered or self.attendance is None)
        if self.attendance is not None:
            followings.do(self._leave(self.attendance))
        elif not self.is_answered:
            followings.do(followings.cancel(self.run_id))

    async def _leave(self, attendance: Attendance) -> None:
        try:
            left = await attendance.leave(self.run_id, is_answered=self.is_answered)
        except StoreUnreachable as error:
            log.warning("run_not_left", run_id=self.run_id, error=str(error))  # it goes on to its end
            return
        if left is not None and not self.is_answered and not self.door.is_closing:
            wait_s = self.door.options.grace_s
            self.door.followings.do_later(wait_s, lambda: self._cancel_if_left(attendance, left))

    async def _cancel_if_left(self, attendance: Attendance, left: bytes) -> None:
        try:
            is_left = await attendance.is_as_left(self.run_id, left)
        except StoreUnreachable as error:
            log.warning("run_not_cancelled", run_id=self.run_id, error=str(error))
            return
        if is_left:
            await self.door.followings.cancel(self.run_id)


async def begin_or_join(
    door: Door, grant: Grant, request: Request, messages: str | Sequence[Message], options: RunOptions
) -> Attended:
    """Begin the run of a request, or join the one that a request before it has begun.

    The run is attended to until the request is over: one whose client has left by then is cancelled, at once or after
    a moment. Raises Problem, and whatever keeps a run from beginning.
    """
    first = FirstRequest.of(request.scope)
    is_repeat = False if first is None else not await first.claim_to_join()
    try:
        return await _Asking(door, grant, request, messages, options).attend(first)
    except (Problem, CallerError):  # of anything else nobody can say whether the run was begun
        if first is not None and not is_repeat:
            await first.give_up()
        raise


@dataclass(frozen=True, slots=True)
class _Asking:
    """One request on its way to its run."""

    door: Door
    grant: Grant
    request: Request
    messages: str | Sequence[Message]
    options: RunOptions

    async def attend(self, first: FirstRequest | None) -> Attended:
        """Begin the run, or join it."""
        count = _retry_count(self.request)
        if first is not None:
            attendance = Attendance.of_key(self.door, first.digest)
        elif count is not None:
            path, body = path_of(self.request.scope), self.request.state.body
            attendance = Attendance.of_like(self.door, self.grant, path, body)
        else:
            return await self._begin(self.door.settings.new_run_id(), None)
        taken = await attendance.take(is_repeat=bool(count))
        if first is None and not count:
            return await self._begin(taken.run_id, attendance)
        return await self._join_or_begin(taken, attendance)

    async def _join_or_begin(self, taken: Taken, attendance: Attendance) -> Attended:
        """Join the run unless it has come to nothing: then begin the one that takes its place, or join that."""
        while True:
            followed, run = self.door.followings.find(taken.run_id), None
            if followed is None:
                run = await self._stored(taken.run_id)
                if run is None and taken.is_known_to_be_stored:
                    await attendance.leave(taken.run_id, is_answered=True)
                    raise _lost(taken.run_id)
                if run is None:
                    return await self._begin(taken.run_id, attendance)
            if run is None or not has_come_to_nothing(run):
                log.info("run_joined", run_id=taken.run_id, request_id=request_id_of(self.request.scope))
                followed = await self.door.followings.join(taken.run_id, run)
                return self._attended(followed, attendance, is_repeat=True)
            taken = await attendance.take_after(taken.run_id)

    async def _stored(self, run_id: str) -> Run | None:
        try:
            return await self.door.orchestrator.get(run_id)
        except RunNotFound:
            return None

    async def _begin(self, run_id: str, attendance: Attendance | None) -> Attended:
        options: RunOptions = {**self.options, "run_id": run_id}

        async def start(hear: Hear) -> None:
            await admit(self.door, self.grant, self.request, options)
            live = LiveReply(hear)
            await self.door.orchestrator.start(self.messages, on_event=live.hear, **options)
            self.door.live.keep(run_id, live)
            if attendance is not None and attendance.has_key:  # this server may be lost before its client leaves
                await attendance.begun(run_id)

        try:
            followed = await self.door.followings.begin(run_id, start)
        except (Problem, CallerError):
            if attendance is not None:
                await attendance.forget(run_id)
            raise
        return self._attended(followed, attendance, is_repeat=False)

    def _attended(self, followed: Followed, attendance: Attendance | None, *, is_repeat: bool) -> Attended:
        attended = Attended(self.door, followed, attendance, is_repeat=is_repeat)
        followed.clients += 1
        # However the request ends, and whether or not anybody has begun to read its answer.
        held: ExitStack = self.request.state.held
        held.callback(attended.close)
        return attended


def has_come_to_nothing(run: Run) -> bool:
    """Return whether a run has ended without an answer and without an effect, so that a repeat begins anew.

    One that somebody has cancelled on purpose stays cancelled.
    """
    if run.has_sent_calls:
        return False
    return run.state is State.FAILED or (run.state is State.CANCELLED and run.reason == ABANDONED)


def _retry_count(request: Request) -> int | None:
    """Return which repeat of its request this is, 0 for the first; None where the client does not say."""
    said = request.headers.get(RETRY_COUNT, "")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= MAX_DIGITS else None


def _lost(run_id: str) -> Problem:
    return Problem(
        HTTPStatus.CONFLICT,
        f"run {run_id}, which this request has begun before, is not stored any more: look what it has done, and ask "
        "anew with another Idempotency-Key",
        code="answer-lost",
        headers=NOT_AGAIN,
    )
