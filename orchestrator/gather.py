"""Call ids to results: woken by the reply stream, checked against the store, never polling in the hot path.

Push is for speed, the stored result for truth: a sweep finds what a push missed. Knows nothing of models or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

import redis
import redis.asyncio
import structlog

from toolfleet.calls import Failed, FailureKind, Progress, ToolCall, ToolResult
from toolfleet.connections import translating
from toolfleet.settings import Settings
from toolfleet.wire import Refused, Seal

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
    """The results of one batch: opens when every call that was added has one, or when calls could not be sent."""

    def __init__(self, on_result: Callable[[ToolCall, ToolResult], None] | None = None) -> None:
        self.results: dict[str, ToolResult] = {}
        self._on_result = on_result
        self._owed = 0
        self._open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self) -> None:
        """One more call must come back."""
        self._owed += 1

    def arrive(self, call: ToolCall, result: ToolResult) -> None:
        """A call has come back."""
        self.results[call.call_id] = result
        self._owed -= 1
        if self._on_result is not None:
            self._on_result(call, result)
        if not self._owed and not self._open.done():
            self._open.set_result(None)

    def fail(self, error: BaseException) -> None:
        """A call could not be sent: whoever waits hears of it."""
        if not self._open.done():
            self._open.set_exception(error)

    def cancel(self) -> None:
        """Nobody collects any more."""
        self._open.cancel()

    async def wait(self) -> dict[str, ToolResult]:
        """Every result by call id."""
        if self._owed:
            await self._open
        return self.results


@dataclass(slots=True)
class _Pending:
    call: ToolCall
    barrier: Barrier
    on_progress: Callable[[ToolCall, Progress], None] | None
    since: float
    waiting: list[asyncio.Future[ToolResult]] = field(default_factory=list)
    """Whoever asked for this one call."""


class Gatherer:
    """Collects the results of one orchestrator's calls. Create it on the loop, then `start` it."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, orchestrator_id: str) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._replies = settings.keys.replies(orchestrator_id)
        self._pending: dict[str, _Pending] = {}
        self._room = asyncio.Semaphore(settings.max_unsettled_calls)
        self._tasks: list[asyncio.Task[None]] = []
        self._recorded: list[str] = []
        self._closing = False

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
        with suppress(redis.RedisError):  # all of it has a TTL
            await self._drop_recorded()
            await self._client.delete(self._replies)

    async def expect(
        self, call: ToolCall, barrier: Barrier, on_progress: Callable[[ToolCall, Progress], None] | None = None
    ) -> None:
        """Bring the call's result to a barrier. Waits while `max_unsettled_calls` are open. Dispatch comes after."""
        await self._room.acquire()
        barrier.add()
        self._pending[call.call_id] = _Pending(call, barrier, on_progress, time.monotonic())

    async def result_of(self, call_id: str, *, wait_s: float) -> ToolResult | None:
        """The result of any call: of one under way here, after waiting for it, or the stored one. None without."""
        if pending := self._pending.get(call_id):
            result: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
            pending.waiting.append(result)
            await asyncio.wait([result], timeout=wait_s)
            return result.result() if result.done() else None
        with translating(self._settings):
            sealed = cast("bytes | None", await self._client.get(self._settings.keys.result(call_id)))
        return self._seal.open_result(sealed, call_id) if sealed else None

    def forget(self, call_ids: Iterable[str]) -> None:
        """Let Redis drop results that are recorded elsewhere, soon: kept for a day they would fill it."""
        self._recorded += call_ids

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
            except redis.RedisError as error:
                log.warning("replies_unreadable", error=str(error))
                await asyncio.sleep(RECONNECT_WAIT_S)

    def _hear(self, fields: dict[bytes, bytes]) -> None:
        call_id = fields.get(b"c", b"").decode()
        pending = self._pending.get(call_id)
        if pending is None:
            return  # a result that the sweep found first, or that nobody waits for any more
        try:
            if b"r" in fields:
                self._settle(pending, fields[b"r"])
            elif b"p" in fields and pending.on_progress:
                pending.on_progress(pending.call, self._seal.open_progress(fields[b"p"], call_id))
        except Refused as refusal:
            log.warning("reply_refused", call_id=call_id, reason=str(refusal))

    def _settle(self, pending: _Pending, sealed: bytes) -> None:
        self.end(pending.call, self._seal.open_result(sealed, pending.call.call_id))

    def end(self, call: ToolCall, result: ToolResult) -> None:
        """Give an expected call its result; a second one is ignored: results come by push and from the store."""
        pending = self._pending.pop(call.call_id, None)
        if pending is None:
            return
        self._room.release()
        pending.barrier.arrive(pending.call, result)
        for waiting in pending.waiting:
            if not waiting.done():
                waiting.set_result(result)

    # --- store --------------------------------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while not self._closing:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._drop_recorded()
                await self._sweep()
            except redis.RedisError as error:
                log.warning("results_unreadable", error=str(error))

    async def _drop_recorded(self) -> None:
        while self._recorded:
            some, self._recorded = self._recorded[:READ_COUNT], self._recorded[READ_COUNT:]
            await self._client.unlink(*(self._settings.keys.result(call_id) for call_id in some))

    async def _sweep(self) -> None:
        """Look up what has been open for a while, and end what is past its deadline."""
        now = time.monotonic()
        waiting = [pending for pending in self._pending.values() if now - pending.since >= SWEEP_S]
        for start in range(0, len(waiting), READ_COUNT):
            some = waiting[start : start + READ_COUNT]
            keys = [self._settings.keys.result(pending.call.call_id) for pending in some]
            stored = cast("list[bytes | None]", await self._client.mget(keys))
            for pending, sealed in zip(some, stored, strict=True):
                if sealed is not None:
                    self._believe(pending, sealed)
                elif time.time() > pending.call.deadline_unix_s + DEADLINE_GRACE_S:
                    self.end(pending.call, _never_came_back(pending.call))

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


def _never_came_back(call: ToolCall) -> Failed:
    return Failed(
        kind=FailureKind.EXPIRED,
        message=f"no result of {call.tool} arrived before its deadline; it may or may not have run.",
    )
