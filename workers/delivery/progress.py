"""Progress of running calls into Redis: the newest of each call, a few times a second, for all calls together.

May be reported from any thread; never blocks a tool and never fails it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import redis
import redis.asyncio

from toolfleet.calls import Progress, ToolCall
from toolfleet.connections import connect
from toolfleet.keys import REPLIES_MAX, REPLIES_TTL_S, RESULT_TTL_S, Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.wire import Seal

log = FactLog("toolfleet.workers")

INTERVAL_S: Final = 0.2
"""A person sees no more than five steps a second; a tool may report a thousand."""


class ProgressReporter(Protocol):
    """Sends the progress of calls."""

    def of(self, call: ToolCall) -> Callable[[Progress], None]:
        """A function that reports progress of `call`."""
        ...


class Newest:
    """The newest progress of each call that has not been sent. Any thread may put, one takes."""

    def __init__(self) -> None:
        self._by_call: dict[str, tuple[ToolCall, Progress]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_call)

    def put(self, call: ToolCall, progress: Progress) -> None:
        """What was put before for this call is of no interest any more."""
        self._by_call[call.call_id] = (call, progress)

    def add_to(self, pipeline: Any, keys: Keys, seal: Seal) -> None:
        """Take all, as commands: kept for whoever asks, pushed to whoever waits."""
        while self._by_call:
            _, (call, progress) = self._by_call.popitem()
            sealed = seal.close_progress(progress, call.call_id)
            replies = keys.replies(call.reply_to)
            pipeline.set(keys.progress(call.call_id), sealed, ex=RESULT_TTL_S)
            pipeline.xadd(replies, {"c": call.call_id, "p": sealed}, maxlen=REPLIES_MAX, approximate=True)
            pipeline.expire(replies, REPLIES_TTL_S)


class LoopReporter:
    """Reports from an event loop that no tool blocks."""

    # Not a `Batcher`: a newer report takes the place of one that waits, nobody waits for an outcome, and a send is
    # followed by a pause.

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._client = client
        self._keys = keys
        self._seal = seal
        self._loop = asyncio.get_running_loop()
        self._newest = Newest()
        self._sending: asyncio.Task[None] | None = None

    def of(self, call: ToolCall) -> Callable[[Progress], None]:
        """A function that reports progress of `call`."""

        def report(progress: Progress) -> None:
            self._newest.put(call, progress)
            if self._sending is None:
                self._loop.call_soon_threadsafe(self._start_sending)

        return report

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._newest:
            pipeline = self._client.pipeline(transaction=False)
            self._newest.add_to(pipeline, self._keys, self._seal)
            try:
                await pipeline.execute()
            except COMMAND_FAILED as error:
                log.info("progress_not_sent", error=str(error))
            await asyncio.sleep(INTERVAL_S)
        self._sending = None


class ThreadReporter:
    """Reports from a thread of its own, where tools block the loop they run on. The thread starts when it is needed."""

    def __init__(self, settings: Settings, seal: Seal) -> None:
        self._settings = settings
        self._seal = seal
        self._newest = Newest()
        self._reported = threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, call: ToolCall) -> Callable[[Progress], None]:
        """A function that reports progress of `call`."""

        def report(progress: Progress) -> None:
            self._newest.put(call, progress)
            self._reported.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_forever, name="progress", daemon=True)
                self._thread.start()

        return report

    def _send_forever(self) -> None:
        client = connect(self._settings)
        while self._reported.wait():
            self._reported.clear()
            pipeline = client.pipeline(transaction=False)
            self._newest.add_to(pipeline, self._settings.keys, self._seal)
            try:
                pipeline.execute()
            except COMMAND_FAILED as error:
                log.info("progress_not_sent", error=str(error))
            time.sleep(INTERVAL_S)
