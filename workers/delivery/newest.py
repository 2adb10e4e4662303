"""What is told of running calls, the newest of each: sent from one event loop, whichever thread it comes from.

So a tool that reports a thousand times a second costs a few commands, and none is kept waiting. Knows nothing of what
is sent.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from toolfleet.batcher import Batcher
from toolfleet.descriptors import are_free
from toolfleet.logs import FactLog
from toolfleet.outages import until_redis_is_back
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.supervision import run_errand, start_thread

log = FactLog("toolfleet.workers")

Value = TypeVar("Value")

MAX_BATCH: Final = 500
"""Calls of which something is sent at once."""


LAST_WITHIN_S: Final = 1.0
"""How long the end of a call waits for what it has said last to be sent."""


class SendingLoop(Protocol):
    """The event loop that sends."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """Call it there, soon. May be called on any thread."""


class SideLoop:
    """An event loop in a thread of its own, for when a tool blocks the loop it runs on. It starts when it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """Call it on the loop, soon. May be called on any thread. Raises OSError where no loop can be made yet."""
        with self._starting:
            if self._loop is None:
                if not are_free():  # what is left of a loop that fails half-way complains wherever it is thrown away
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                self._loop = asyncio.new_event_loop()
                start_thread(self._name, self._loop.run_forever)
        return self._loop.call_soon_threadsafe(callback, *args)


class NewestOfEach(Generic[Value]):
    """Sends the newest value of each call. One that comes while another of its call waits takes its place."""

    def __init__(
        self,
        loop: SendingLoop,
        send: Callable[[dict[str, Value]], Awaitable[None]],
        *,
        is_owed: bool,
        send_last: Callable[[dict[str, Value]], Awaitable[None]] | None = None,
    ) -> None:
        """`send` is given values by call id. `is_owed`: what could not be sent waits for Redis, else it is dropped.

        `send_last` sends at once what a call has said last, if `send` takes its time.
        """
        self._loop = loop
        self._send = send
        self._send_at_once = send_last or send
        self._is_owed = is_owed
        self._waiting: dict[str, Value] = {}
        self._announced: set[str] = set()
        """The calls of which the loop was told that something waits."""
        self._batcher = Batcher(self._send_batch, max_batch=MAX_BATCH)

    def put(self, call_id: str, value: Value) -> None:
        """Have a value sent soon. May be called on any thread, and never waits."""
        self._waiting[call_id] = value
        if call_id not in self._announced:
            self._announced.add(call_id)
            try:
                self._loop.call_soon_threadsafe(self._batcher.add, call_id)
            except OSError:  # no file descriptor for a loop: the next one tries again
                self._announced.discard(call_id)

    def waits(self, call_id: str) -> bool:
        """Whether something of a call waits to be sent."""
        return call_id in self._waiting

    async def send_last(self, call_id: str) -> None:
        """Send what waits of a call, beside what others wait with, or give it up. May be awaited on any loop."""
        sent: Future[None] = Future()
        self._loop.call_soon_threadsafe(lambda: run_errand("last_of_call", self._send_last(call_id, sent)))
        await asyncio.wrap_future(sent)

    async def _send_last(self, call_id: str, sent: Future[None]) -> None:
        try:
            if (value := self._waiting.pop(call_id, None)) is not None:
                async with asyncio.timeout(LAST_WITHIN_S):
                    await self._send_at_once({call_id: value})
        except (TimeoutError, *COMMAND_FAILED) as error:
            log.info("newest_not_sent", calls=1, error=str(error))
        finally:
            _done(sent)

    async def sent(self, call_id: str) -> None:
        """Return when what was put of a call before is sent, or given up. May be awaited on any loop."""
        sent: Future[None] = Future()
        self._loop.call_soon_threadsafe(lambda: self._batcher.add(call_id).add_done_callback(lambda _: _done(sent)))
        await asyncio.wrap_future(sent)

    async def drain(self, within_s: float) -> None:
        """Send what waits, unless that takes longer. Call it on the loop that sends."""
        for call_id in list(self._waiting):
            self._batcher.add(call_id)
        try:
            async with asyncio.timeout(within_s):
                await self._batcher.drain()
        except TimeoutError:
            log.info("newest_not_sent", calls=len(self._waiting))

    async def _send_batch(self, call_ids: Sequence[str]) -> Sequence[None]:
        # Before anything is taken: a value that is put from now on is announced again, so that none is overlooked.
        self._announced.difference_update(call_ids)
        if self._is_owed:
            await until_redis_is_back(lambda: self._send_newest(call_ids))
        else:
            try:
                await self._send_newest(call_ids)
            except COMMAND_FAILED as error:
                log.info("newest_not_sent", calls=len(call_ids), error=str(error))
        return [None] * len(call_ids)

    async def _send_newest(self, call_ids: Sequence[str]) -> None:
        taken: dict[str, Value] = {}
        for call_id in call_ids:
            if (value := self._waiting.pop(call_id, None)) is not None:
                taken[call_id] = value
        if not taken:
            return
        try:
            await self._send(taken)
        except (*COMMAND_FAILED, asyncio.CancelledError):
            if self._is_owed:
                for call_id, value in taken.items():
                    self._waiting.setdefault(call_id, value)  # unless a newer one has come
            raise


def _done(told: Future[None]) -> None:
    if not told.cancelled():
        told.set_result(None)
