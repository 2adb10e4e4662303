"""Call ids to results: which calls are waited for here, by whom, and what has come of them.

Push is for speed, the stored result for truth. A call is settled once, whichever of the two is first; what comes second
is ignored. Results are brought by `replies.py`. Knows nothing of runs but their ids, nothing of models or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import redis
import redis.asyncio

from toolfleet.calls import Failed, FailureKind, Progress, ToolCall, ToolResult
from toolfleet.logs import FactLog
from toolfleet.orchestrator.fleet.alarms import Alarms
from toolfleet.orchestrator.fleet.barrier import Barrier
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.skipped import open_or_skip
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

READ_COUNT: Final = 1000
"""How many results are read or removed by one command."""

ENDED_REMEMBERED: Final = 10_000
"""Of how many of the newest calls that have ended this is known."""

TIDY_WITHIN_S: Final = 5.0
"""How long an orchestrator that stops waits for Redis to drop what nobody reads any more."""

DEADLINE_GRACE_S: Final = 2.0
"""A worker that stops a call at its deadline still has to say so."""


@dataclass(slots=True)
class _Pending:
    call: ToolCall
    barrier: Barrier
    on_progress: Callable[[ToolCall, Progress], None] | None
    since: float


class Gatherer:
    """Knows the calls of one orchestrator that somebody waits for. Create it on the loop.

    A call is *expected* while a group waits for it, and *watched* while its run rests: a watched call costs two entries
    in a table and is looked at when its result is pushed, never by a loop.
    """

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, orchestrator_id: str) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._replies = settings.keys.replies(orchestrator_id)
        self._pending: dict[str, _Pending] = {}
        self._watched: dict[str, str] = {}
        self._waiters: dict[str, list[asyncio.Future[ToolResult]]] = {}
        self._alarms = Alarms()
        self._room = asyncio.Semaphore(settings.max_unsettled_calls)
        self._forgotten: list[str] = []
        self._ended: OrderedDict[str, None] = OrderedDict()

    async def aclose(self) -> None:
        """Stop waiting. Calls that are still open go on at their workers, and their results are kept in the store."""
        for pending in self._pending.values():
            pending.barrier.cancel()
        with suppress(*COMMAND_FAILED, TimeoutError):  # all of it has a TTL
            async with asyncio.timeout(TIDY_WITHIN_S):
                await self.drop_forgotten()
                await self._client.delete(self._replies)

    # --- a group waits ------------------------------------------------------------------------------------------

    async def expect(
        self, call: ToolCall, barrier: Barrier, on_progress: Callable[[ToolCall, Progress], None] | None = None
    ) -> None:
        """Bring the call's result to a barrier. Waits while `max_unsettled_calls` are open. Dispatch comes after."""
        # An orchestrator that sent without bound would fill Redis with results faster than it reads them.
        await self._room.acquire()
        barrier.add(call.call_id)
        self._ended.pop(call.call_id, None)
        self._pending[call.call_id] = _Pending(call, barrier, on_progress, time.monotonic())

    def give_up(self, call_ids: Iterable[str]) -> None:
        """Expect these calls no longer; their results stay in the store."""
        for call_id in call_ids:
            if self._pending.pop(call_id, None):
                self._room.release()

    def fail(self, calls: Iterable[ToolCall], error: BaseException) -> None:
        """Raise `error` where the results of these calls are awaited: they could not be sent."""
        for call in calls:
            if pending := self._pending.pop(call.call_id, None):
                self._room.release()
                pending.barrier.fail(error)

    @property
    def is_full(self) -> bool:
        """Whether `expect` would wait for a call to be settled first."""
        return len(self._pending) >= self._settings.max_unsettled_calls

    def end(self, call: ToolCall, result: ToolResult) -> None:
        """Give an expected call its result; a second one is ignored: results come by push and from the store."""
        pending = self._pending.pop(call.call_id, None)
        if pending is None:
            return
        self._room.release()
        pending.barrier.arrive(pending.call, result)
        self._answer_waiters(call.call_id, result)

    def forget(self, call_ids: Iterable[str]) -> None:
        """Have results removed soon that are recorded elsewhere: kept for a day they would fill Redis."""
        for call_id in call_ids:
            self._forgotten.append(call_id)
            self._ended[call_id] = None
            if len(self._ended) > ENDED_REMEMBERED:
                self._ended.popitem(last=False)

    def has_ended(self, call: ToolCall) -> bool:
        """Whether the result of this call was recorded lately: one that has only come may be lost with the store."""
        return call.call_id in self._ended

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

    def hear(self, call_id: str, fields: Mapping[bytes, bytes]) -> bool:
        """Take what was pushed of a call. Returns whether the call is expected. Raises Refused for a false seal."""
        pending = self._pending.get(call_id)
        if pending is None:
            return False
        if b"r" in fields:
            self._settle(pending, fields[b"r"])
        elif b"s" in fields:
            self._seal.open_result(fields[b"s"], call_id)
            pending.barrier.lose_patience([call_id])
        elif b"p" in fields and pending.on_progress:
            pending.on_progress(pending.call, self._seal.open_progress(fields[b"p"], call_id))
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

    def _settle(self, pending: _Pending, sealed: bytes) -> None:
        self.end(pending.call, self._seal.open_result(sealed, pending.call.call_id))

    def _answer_waiters(self, call_id: str, result: ToolResult) -> None:
        for waiting in self._waiters.get(call_id, ()):
            if not waiting.done():
                waiting.set_result(result)

    # --- store --------------------------------------------------------------------------------------------------

    async def drop_forgotten(self) -> None:
        """Remove the results that `forget` was told of."""
        while some := self._forgotten[:READ_COUNT]:
            await self._client.unlink(*(self._settings.keys.result(call_id) for call_id in some))
            del self._forgotten[: len(some)]

    async def look_up(self, call_ids: Iterable[str]) -> None:
        """Give expected calls the results that are stored. Raises StoreUnreachable."""
        await self._look_up([self._pending[call_id] for call_id in call_ids if call_id in self._pending])

    async def look_up_older(self, than_s: float) -> None:
        """Give results to the calls that have been expected for longer than this: their push may have been lost."""
        now = time.monotonic()
        await self._look_up([pending for pending in self._pending.values() if now - pending.since >= than_s])

    async def _look_up(self, waiting: Sequence[_Pending]) -> None:
        """Settle what has a stored result, and end what is past its deadline."""
        for start in range(0, len(waiting), READ_COUNT):
            some = waiting[start : start + READ_COUNT]
            keys = [self._settings.keys.result(pending.call.call_id) for pending in some]
            stored = cast("list[bytes | None]", await self._client.mget(keys))
            for pending, sealed in zip(some, stored, strict=True):
                call = pending.call
                if result := self._believed(sealed, call.call_id):
                    self.end(call, result)
                elif time.time() > call.deadline_unix_s + DEADLINE_GRACE_S:
                    self.end(call, never_came_back(call.tool))

    def _believed(self, sealed: bytes | None, call_id: str) -> ToolResult | None:
        return open_or_skip("result", self._seal.open_result, sealed, call_id)


def never_came_back(tool: str) -> Failed:
    """Return what the model reads of a call whose deadline passed without a result."""
    return Failed(
        kind=FailureKind.EXPIRED,
        message=f"no result of {tool} arrived before its deadline; it may or may not have run.",
    )
