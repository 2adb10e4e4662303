"""Call ids to results: which calls are waited for here, by whom, and what has come of them.

Push is for speed, the stored result for truth. A call is settled once, whichever of the two is first; what comes second
is ignored. Results are brought by `replies.py`. Knows nothing of runs but their ids, nothing of models or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, cast

import redis
import redis.asyncio

from toolfleet.call_news import open_news
from toolfleet.calls import Failed, FailureKind, ToolCall, ToolResult
from toolfleet.logs import FactLog
from toolfleet.orchestrator.fleet.alarms import Alarms
from toolfleet.orchestrator.fleet.barrier import Barrier
from toolfleet.orchestrator.fleet.expected import Expectation, ExpectedCalls
from toolfleet.orchestrator.fleet.look_ups import FIRST_S, LookUps, first_wait_s, wait_s
from toolfleet.orchestrator.fleet.trials import Trials
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.skipped import open_or_skip
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

READ_COUNT: Final = 1000
"""How many results are read or removed by one command."""

FOUND_REMEMBERED: Final = 10_000
"""Of how many of the newest calls it is known that they were found in the store."""

TIDY_WITHIN_S: Final = 5.0
"""How long an orchestrator that stops waits for Redis to drop what nobody reads any more."""

DEADLINE_GRACE_S: Final = 2.0
"""A worker that stops a call at its deadline still has to say so."""


class Gatherer:
    """Knows the calls of one orchestrator that somebody waits for. Create it on the loop.

    A call is *expected* while a group waits for it, and *watched* while its run rests: a watched call costs two entries
    in a table and is looked at when its result is pushed, never by a loop.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        seal: Seal,
        orchestrator_id: str,
        trials: Trials | None = None,
    ) -> None:
        """`trials` counts what comes of calls of versions that are tried."""
        self._client = client
        self._trials = trials
        self._settings = settings
        self._seal = seal
        self._replies = settings.keys.replies(orchestrator_id)
        self._expected = ExpectedCalls(at_most=settings.max_unsettled_calls)
        self._look_ups = LookUps(self._is_due)
        self._watched: dict[str, str] = {}
        self._waiters: dict[str, list[asyncio.Future[ToolResult]]] = {}
        self._alarms = Alarms()
        self._forgotten: deque[str] = deque()
        self._found: OrderedDict[str, None] = OrderedDict()

    async def aclose(self) -> None:
        """Stop waiting. Calls that are still open go on at their workers, and their results are kept in the store."""
        for barrier in self._expected.barriers:
            barrier.cancel()
        with suppress(*COMMAND_FAILED, TimeoutError):  # all of it has a TTL
            async with asyncio.timeout(TIDY_WITHIN_S):
                await self.drop_forgotten()
                await self._client.delete(self._replies)

    # --- a group waits ------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether `max_unsettled_calls` are open, so that `room` would wait for one of them to be settled."""
        return self._expected.is_full

    async def room(self) -> None:
        """Wait while there is no room: who sent without bound would fill Redis with results faster than it reads."""
        await self._expected.room()

    def expect(self, call: ToolCall, barrier: Barrier) -> None:
        """Bring the call's result to a barrier. `room` comes before, dispatch after."""
        self._found.pop(call.call_id, None)
        if self._trials is not None:
            self._trials.begin(call)
        now_s = time.monotonic()
        look_tick = self._look_ups.put(call.call_id, now_s + self._first_look_s(call))
        self._expected.add(call, barrier, since_s=now_s, look_tick=look_tick)

    def give_up(self, call_ids: Iterable[str]) -> None:
        """Expect these calls no longer; their results stay in the store."""
        for call_id in call_ids:
            self._expected.pop(call_id)
            if self._trials is not None:
                self._trials.give_up(call_id)

    def fail(self, call_ids: Iterable[str], error: BaseException) -> None:
        """Raise `error` where the results of these calls are awaited: they could not be sent."""
        for call_id in call_ids:
            if expected := self._expected.pop(call_id):
                expected.barrier.fail(error)

    def end(self, call_id: str, result: ToolResult) -> None:
        """Give an expected call its result; a second one is ignored: results come by push and from the store."""
        expected = self._expected.pop(call_id)
        if expected is None:
            return
        if self._trials is not None:
            self._trials.end(call_id, result)
        expected.barrier.arrive(call_id, expected.tool, result)
        if self._waiters:
            self._answer_waiters(call_id, result)

    def forget(self, call_ids: Iterable[str]) -> None:
        """Have results removed soon that are recorded elsewhere: kept for a day they would fill Redis."""
        self._forgotten += call_ids

    # --- a run rests --------------------------------------------------------------------------------------------

    def watch(self, run_id: str, call_ids: Iterable[str], *, until_unix_s: float | None = None) -> None:
        """Wake the run when one of these calls is back, or when that time has come."""
        for call_id in call_ids:
            self._watched[call_id] = run_id
        if until_unix_s is not None:
            self._alarms.set(run_id, until_unix_s + DEADLINE_GRACE_S)

    def unwatch(self, run_id: str, call_ids: Iterable[str]) -> None:
        """Wake the run no longer for these calls, nor at any time: it looks after them itself."""
        for call_id in call_ids:
            self._watched.pop(call_id, None)
        self._alarms.unset(run_id)

    async def result_of(self, call_id: str, *, wait_s: float) -> ToolResult | None:
        """Return the result of any call, waiting up to `wait_s` for it; None when there is none by then."""
        result: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        # Before the store is read: a result that landed between the two would be missed.
        self._waiters.setdefault(call_id, []).append(result)
        try:
            sealed = cast("bytes | None", await self._client.get(self._settings.keys.result(call_id)))
            if stored := self._believed(sealed, call_id):
                return stored
            if wait_s > 0:
                await asyncio.wait([result], timeout=wait_s)
            return result.result() if result.done() else None
        finally:
            self._waiters[call_id].remove(result)
            if not self._waiters[call_id]:
                del self._waiters[call_id]

    # --- a result comes -----------------------------------------------------------------------------------------

    def hear(self, call_id: str, kind: bytes, sealed: bytes) -> bool:
        """Take what was pushed of a call. Returns whether it concerns nobody else. Raises Refused for a false seal.

        `kind` is `r` for its result, `s` where it is slow, `p` for its progress, and `n` for other news.
        """
        expected = self._expected.get(call_id)
        if expected is None:
            # The push of what was found in the store before.
            return call_id in self._found and call_id not in self._watched
        if kind == b"r":
            self.end(call_id, self._seal.open_result(sealed, call_id))
        elif kind == b"s":
            self._seal.open_result(sealed, call_id)
            expected.barrier.lose_patience([call_id])
        elif kind == b"p":
            expected.barrier.tell(call_id, expected.tool, self._seal.open_progress(sealed, call_id))
        else:
            expected.barrier.tell(call_id, expected.tool, open_news(self._seal, sealed, call_id))
        return True

    def watched_for(self, call_id: str) -> str | None:
        """Return the run that rests until this call is back; None when no run does."""
        return self._watched.get(call_id)

    def end_watch(self, call_id: str, result: ToolResult) -> None:
        """Give the result of a call that is not expected to whoever asked about it; watch the call no longer."""
        self._answer_waiters(call_id, result)
        self._watched.pop(call_id, None)

    def due(self, now_unix_s: float) -> list[str]:
        """Return the resting runs whose time has come, each of them once."""
        return list(self._alarms.due(now_unix_s))

    def _answer_waiters(self, call_id: str, result: ToolResult) -> None:
        for waiting in self._waiters.get(call_id, ()):
            if not waiting.done():
                waiting.set_result(result)

    # --- store --------------------------------------------------------------------------------------------------

    async def drop_forgotten(self) -> None:
        """Remove the results that `forget` was told of."""
        forgotten = self._forgotten
        while some := [forgotten.popleft() for _ in range(min(len(forgotten), READ_COUNT))]:
            try:
                await self._client.unlink(*map(self._settings.keys.result, some))
            except BaseException:
                forgotten.extend(some)
                raise

    async def look_up(self, call_ids: Iterable[str]) -> None:
        """Give expected calls the results that are stored, and end those past their deadline.

        Raises StoreUnreachable.
        """
        waiting = [call_id for call_id in call_ids if self._expected.get(call_id)]
        for start in range(0, len(waiting), READ_COUNT):
            some = waiting[start : start + READ_COUNT]
            stored = cast("list[bytes | None]", await self._client.mget(list(map(self._settings.keys.result, some))))
            for call_id, sealed in zip(some, stored, strict=True):
                # Many were pushed while the store was asked.
                if expected := self._expected.get(call_id):
                    self._find(call_id, expected, sealed)

    async def look_up_due(self) -> None:
        """Look up the calls whose time has come: a push may have been lost. Raises StoreUnreachable."""
        due = self._look_ups.due(time.monotonic())
        try:
            await self.look_up(due)
        except BaseException:
            self._look_again(due, soon=True)
            raise
        self._look_again(due)

    def look_up_all_soon(self) -> None:
        """Let the next look be at all calls: pushes may have been lost."""
        self._look_ups.clear()
        self._look_again(list(self._expected), soon=True)

    def _is_due(self, call_id: str, tick: int) -> bool:
        expected = self._expected.get(call_id)
        return expected is not None and expected.look_tick == tick

    def _first_look_s(self, call: ToolCall) -> float:
        """How long the call is waited for before it is looked up: not beyond its deadline, which ends it here."""
        first_s = first_wait_s(len(self._expected))
        if first_s == FIRST_S:
            return first_s
        return min(first_s, max(FIRST_S, call.deadline_unix_s + DEADLINE_GRACE_S - time.time()))

    def _look_again(self, call_ids: Iterable[str], *, soon: bool = False) -> None:
        now_s, now_unix_s, waiting = time.monotonic(), time.time(), len(self._expected)
        # What calls have shared they share again, or a look at a hundred thousand would make as many of their own.
        later: dict[tuple[Expectation, int], Expectation] = {}
        for call_id in call_ids:
            if expected := self._expected.get(call_id):
                left_s = max(expected.deadline_unix_s + DEADLINE_GRACE_S - now_unix_s, 0.0)
                again_s = 0.0 if soon else min(wait_s(now_s - expected.since_s, waiting), left_s)
                changed = expected, self._look_ups.put(call_id, now_s + again_s)
                if changed not in later:
                    later[changed] = expected._replace(look_tick=changed[1])
                self._expected.change(call_id, later[changed])

    def _find(self, call_id: str, expected: Expectation, sealed: bytes | None) -> None:
        if result := self._believed(sealed, call_id):
            self._remember_found(call_id)
            self.end(call_id, result)
        elif time.time() > expected.deadline_unix_s + DEADLINE_GRACE_S:
            self.end(call_id, never_came_back(expected.tool))

    def _remember_found(self, call_id: str) -> None:
        self._found[call_id] = None
        if len(self._found) > FOUND_REMEMBERED:
            self._found.popitem(last=False)

    def _believed(self, sealed: bytes | None, call_id: str) -> ToolResult | None:
        return open_or_skip("result", self._seal.open_result, sealed, call_id)


def never_came_back(tool: str) -> Failed:
    """Return what the model reads of a call whose deadline passed without a result."""
    return Failed(
        kind=FailureKind.EXPIRED,
        message=f"no result of {tool} arrived before its deadline; it may or may not have run.",
    )
