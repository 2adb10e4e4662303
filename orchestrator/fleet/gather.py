"""Call ids to results: woken by the reply stream, checked against the store, never polling in the hot path.

Push is for speed, the stored result for truth: a sweep finds what a push missed. Knows nothing of models or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import redis
import redis.asyncio
import structlog

from toolfleet.calls import Failed, FailureKind, Progress, ToolCall, ToolResult, run_of
from toolfleet.errors import Refused
from toolfleet.orchestrator.fleet.alarms import Alarms
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.wire import Seal

log = structlog.get_logger("toolfleet.orchestrator")

BLOCK_MS: Final = 5000
"""How long one read waits on the server; only sets how often an idle orchestrator says hello."""

READ_COUNT: Final = 1000

TRIM_EVERY_S: Final = 1.0
"""How long the reply stream of a quiet orchestrator keeps what was heard."""

SWEEP_S: Final = 2.0
"""How long a result can be missed when its push was lost."""

DEADLINE_GRACE_S: Final = 2.0
"""A worker that stops a call at its deadline still has to say so."""

RECONNECT_WAIT_S: Final = 0.2

CANCEL_AGAIN_S: Final = 0.5


class Barrier:
    """The results of one batch. Opens when no call that was added is still waited for with patience."""

    def __init__(
        self, on_result: Callable[[ToolCall, ToolResult], None] | None = None, *, patient: bool = False
    ) -> None:
        self.results: dict[str, ToolResult] = {}
        self.slow: set[str] = set()
        """The calls that have no result and are not waited for any longer."""
        self._on_result = on_result
        self._patient = patient
        self._awaited: set[str] = set()
        self._handles: set[str] = set()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, call_id: str) -> None:
        """One more call to wait for."""
        self._awaited.add(call_id)

    def arrive(self, call: ToolCall, result: ToolResult) -> None:
        """A call has come back. One that became a handle stays one: its result is told of, and fetched later."""
        if self._on_result is not None:
            self._on_result(call, result)
        if call.call_id in self._handles:
            return
        self.results[call.call_id] = result
        self.slow.discard(call.call_id)
        self._no_longer_awaited(call.call_id)

    def lose_patience(self, call_ids: Iterable[str]) -> None:
        """These calls are slow: whoever waits need not wait for them, unless the barrier is patient with all."""
        for call_id in () if self._patient else call_ids:
            if call_id in self._awaited:
                self.slow.add(call_id)
                self._no_longer_awaited(call_id)

    def become_handles(self, call_ids: Iterable[str]) -> None:
        """These calls are slow whatever comes: the model gets a handle for each."""
        handles = set() if self._patient else set(call_ids)
        self._handles |= handles
        self.lose_patience(handles)

    def fail(self, error: BaseException) -> None:
        """A call could not be sent: whoever waits hears of it."""
        if not self._opened.done():
            self._opened.set_exception(error)

    def cancel(self) -> None:
        """Nobody collects any more."""
        self._opened.cancel()

    @property
    def open(self) -> set[str]:
        """The calls that have no result."""
        return self.slow | self._awaited

    async def wait(self) -> None:
        """Return when every call has a result or is slow."""
        if self._awaited:
            await self._opened

    def _no_longer_awaited(self, call_id: str) -> None:
        self._awaited.discard(call_id)
        if not self._awaited and not self._opened.done():
            self._opened.set_result(None)


class Listener(Protocol):
    """Who hears of calls that no batch waits for: those of runs that rest, or that go on without them."""

    def call_back(self, run_id: str, call_id: str, result: ToolResult) -> None:
        """A watched call has its result; it is in the store too."""
        ...

    def call_progressed(self, run_id: str, call_id: str, progress: Progress) -> None:
        """A watched call has come further."""
        ...

    def poked(self, run_id: str) -> None:
        """Somebody else has written to the run, or knows of news for it."""
        ...


@dataclass(slots=True)
class _Pending:
    call: ToolCall
    barrier: Barrier
    on_progress: Callable[[ToolCall, Progress], None] | None
    since: float


class Gatherer:
    """Collects the results of one orchestrator's calls. Create it on the loop, then `start` it.

    A call is *expected* while a batch waits for it, and *watched* while its run rests: a watched call costs two entries
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
        self._tasks: list[asyncio.Task[None]] = []
        self._recorded: list[str] = []
        self._closing = False
        self.listener: Listener | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._sweep_forever())]

    async def aclose(self) -> None:
        """Stop listening; calls still open are cancelled here, not on the workers."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        # redis-py can lose a cancellation that comes together with a reply, hence the flag and the second attempt.
        while self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN_S)
            self._tasks = list(pending)
            for task in pending:
                task.cancel()
        for pending_call in self._pending.values():
            pending_call.barrier.cancel()
        with suppress(*COMMAND_FAILED):  # all of it has a TTL
            await self._drop_recorded()
            await self._client.delete(self._replies)

    # --- a batch waits ------------------------------------------------------------------------------------------

    async def expect(
        self, call: ToolCall, barrier: Barrier, on_progress: Callable[[ToolCall, Progress], None] | None = None
    ) -> None:
        """Bring the call's result to a barrier. Waits while `max_unsettled_calls` are open. Dispatch comes after."""
        await self._room.acquire()
        barrier.add(call.call_id)
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
        """Let Redis drop results that are recorded elsewhere, soon: kept for a day they would fill it."""
        self._recorded += call_ids

    # --- a run rests --------------------------------------------------------------------------------------------

    def watch(self, run_id: str, call_ids: Iterable[str], *, until_unix_s: float | None = None) -> None:
        """Tell the listener when one of these calls is back, or when that time has come."""
        for call_id in call_ids:
            self._watched[call_id] = run_id
        if until_unix_s is not None:
            self._alarms.set(run_id, until_unix_s + DEADLINE_GRACE_S)

    def unwatch(self, run_id: str, call_ids: Iterable[str]) -> None:
        """The run looks after these calls itself."""
        for call_id in call_ids:
            self._watched.pop(call_id, None)
        self._alarms.unset(run_id)

    async def result_of(self, call_id: str, *, wait_s: float) -> ToolResult | None:
        """The result of any call, after waiting for its push or with what is stored; None without."""
        result: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        # Before the store is read: a result that landed between the two would be missed.
        self._waiters.setdefault(call_id, []).append(result)
        try:
            sealed = cast("bytes | None", await self._client.get(self._settings.keys.result(call_id)))
            if sealed:
                return self._seal.open_result(sealed, call_id)
            if wait_s > 0:
                await asyncio.wait([result], timeout=wait_s)
            return result.result() if result.done() else None
        finally:
            self._waiters[call_id].remove(result)
            if not self._waiters[call_id]:
                del self._waiters[call_id]

    # --- push ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        last_id, heard, trimmed_s = b"0", 0, time.monotonic()
        while not self._closing:
            try:
                reply = await self._client.xread({self._replies: last_id}, count=READ_COUNT, block=BLOCK_MS)
                for _, entries in _streams(reply):
                    for entry_id, fields in entries:
                        last_id = entry_id
                        self._hear(fields)
                    heard += len(entries)
                if heard and (heard >= READ_COUNT or time.monotonic() - trimmed_s > TRIM_EVERY_S):
                    # What was heard is settled in the store too; the stream need not keep it.
                    await self._client.xtrim(self._replies, minid=_after(last_id), approximate=False)
                    heard, trimmed_s = 0, time.monotonic()
            except COMMAND_FAILED as error:
                log.warning("replies_unreadable", error=str(error))
                await asyncio.sleep(RECONNECT_WAIT_S)

    def _hear(self, fields: dict[bytes, bytes]) -> None:
        if b"run" in fields:
            self._poke(fields[b"run"].decode())
            return
        call_id = fields.get(b"c", b"").decode()
        try:
            if pending := self._pending.get(call_id):
                self._hear_expected(pending, fields)
            elif run_id := self._watched.get(call_id):
                self._hear_watched(run_id, call_id, fields)
            elif b"r" in fields:
                # One that the sweep found first, or that nobody waits for any more; or its run is another's by now.
                self._answer_waiters(call_id, self._seal.open_result(fields[b"r"], call_id))
                self._poke(run_of(call_id))
        except Refused as refusal:
            log.warning("reply_refused", call_id=call_id, reason=str(refusal))

    def _hear_expected(self, pending: _Pending, fields: dict[bytes, bytes]) -> None:
        call_id = pending.call.call_id
        if b"r" in fields:
            self._settle(pending, fields[b"r"])
        elif b"s" in fields:
            self._seal.open_result(fields[b"s"], call_id)
            pending.barrier.lose_patience([call_id])
        elif b"p" in fields and pending.on_progress:
            pending.on_progress(pending.call, self._seal.open_progress(fields[b"p"], call_id))

    def _hear_watched(self, run_id: str, call_id: str, fields: dict[bytes, bytes]) -> None:
        if b"r" in fields:
            result = self._seal.open_result(fields[b"r"], call_id)
            self._answer_waiters(call_id, result)
            del self._watched[call_id]
            if self.listener:
                self.listener.call_back(run_id, call_id, result)
        elif b"p" in fields and self.listener:
            self.listener.call_progressed(run_id, call_id, self._seal.open_progress(fields[b"p"], call_id))

    def _poke(self, run_id: str) -> None:
        if self.listener:
            self.listener.poked(run_id)

    def _settle(self, pending: _Pending, sealed: bytes) -> None:
        self.end(pending.call, self._seal.open_result(sealed, pending.call.call_id))

    def _answer_waiters(self, call_id: str, result: ToolResult) -> None:
        for waiting in self._waiters.get(call_id, ()):
            if not waiting.done():
                waiting.set_result(result)

    # --- store --------------------------------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while not self._closing:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._drop_recorded()
                await self._sweep()
                for run_id in self._alarms.due(time.time()):
                    self._poke(run_id)
            except COMMAND_FAILED as error:
                log.warning("results_unreadable", error=str(error))

    async def _drop_recorded(self) -> None:
        while self._recorded:
            some, self._recorded = self._recorded[:READ_COUNT], self._recorded[READ_COUNT:]
            await self._client.unlink(*(self._settings.keys.result(call_id) for call_id in some))

    async def look_up(self, call_ids: Iterable[str]) -> None:
        """Give expected calls the results that are stored. Raises StoreUnreachable."""
        await self._look_up([self._pending[call_id] for call_id in call_ids if call_id in self._pending])

    async def _sweep(self) -> None:
        now = time.monotonic()
        await self._look_up([pending for pending in self._pending.values() if now - pending.since >= SWEEP_S])

    async def _look_up(self, waiting: Sequence[_Pending]) -> None:
        """Settle what has a stored result, and end what is past its deadline."""
        for start in range(0, len(waiting), READ_COUNT):
            some = waiting[start : start + READ_COUNT]
            keys = [self._settings.keys.result(pending.call.call_id) for pending in some]
            stored = cast("list[bytes | None]", await self._client.mget(keys))
            for pending, sealed in zip(some, stored, strict=True):
                if sealed is not None:
                    self._believe(pending, sealed)
                elif time.time() > pending.call.deadline_unix_s + DEADLINE_GRACE_S:
                    self.end(pending.call, never_came_back(pending.call.tool))

    def _believe(self, pending: _Pending, sealed: bytes) -> None:
        try:
            self._settle(pending, sealed)
        except Refused as refusal:
            log.warning("result_refused", call_id=pending.call.call_id, reason=str(refusal))


def _streams(reply: Any) -> Iterable[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """XREAD's reply in either protocol version: RESP3 sends a map, RESP2 a list of pairs."""
    if isinstance(reply, dict):
        return ((name, entries[0] if len(entries) == 1 else entries) for name, entries in reply.items())
    return reply or ()


def _after(entry_id: bytes) -> str:
    milliseconds, _, sequence = entry_id.decode().partition("-")
    return f"{milliseconds}-{int(sequence) + 1}"


def never_came_back(tool: str) -> Failed:
    """What the model reads of a call whose deadline passed without a result."""
    return Failed(
        kind=FailureKind.EXPIRED,
        message=f"no result of {tool} arrived before its deadline; it may or may not have run.",
    )
