"""Checkpoints of running calls into Redis: the newest of each call, as soon as it can be written, until it is written.

May be kept from any thread and never blocks a tool. What is in a checkpoint is the tool's business.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final, Protocol

import redis
import redis.asyncio

from toolfleet.connections import connect
from toolfleet.context import Context
from toolfleet.errors import Refused
from toolfleet.keys import CLAIM_GRACE_S, Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.wire import Seal

log = FactLog("toolfleet.workers")

RETRY_S: Final = 0.5
"""Between two tries while Redis is away; what is kept meanwhile takes the place of what waits."""

FLUSH_WITHIN_S: Final = 2.0
"""How long the end of a worker waits for checkpoints that are not written yet."""


class Checkpoints(Protocol):
    """Keeps the checkpoints of the calls of one process."""

    def keep(self, context: Context, text: bytes) -> None:
        """Take a checkpoint over from a tool, to be written at once."""
        ...

    def found(self, call_id: str) -> None:
        """An earlier attempt at a call has left a checkpoint."""
        ...

    def leave(self, call_id: str) -> None:
        """The call will go on elsewhere, from what was kept."""
        ...

    def end(self, call_id: str, *, settled: bool) -> None:
        """The call is settled, here or by another worker; what was kept is removed by the one that settled it."""
        ...

    async def aclose(self) -> None:
        """Write what waits, unless Redis is away."""
        ...


class Waiting:
    """What is to be written, the newest of each call, and which calls have a checkpoint. Any thread may put."""

    def __init__(self, keys: Keys, seal: Seal) -> None:
        self._keys = keys
        self._seal = seal
        self._by_call: dict[str, tuple[bytes, float]] = {}
        self._kept: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._by_call)

    def put(self, context: Context, text: bytes) -> None:
        """What was put before for this call is of no interest any more."""
        self._kept.add(context.call_id)
        self._by_call[context.call_id] = (text, context.deadline_unix_s)

    def put_end(self, call_id: str, *, settled: bool) -> bool:
        """Whether there is something to write: the removal of what was kept. It cannot overtake a checkpoint."""
        if call_id not in self._kept:
            return False
        self._kept.discard(call_id)
        if settled:
            self._by_call[call_id] = (b"", 0.0)
        return settled

    def found(self, call_id: str) -> None:
        """An earlier attempt has left a checkpoint."""
        self._kept.add(call_id)

    def take(self, pipeline: Any) -> dict[str, tuple[bytes, float]]:
        """Take all, as commands; give them back with `put_back` when they could not be sent."""
        taken: dict[str, tuple[bytes, float]] = {}
        while self._by_call:
            call_id, (text, deadline_unix_s) = self._by_call.popitem()
            taken[call_id] = (text, deadline_unix_s)
            key = self._keys.checkpoint(call_id)
            if text:
                ttl_s = max(1, int(deadline_unix_s - time.time())) + CLAIM_GRACE_S
                pipeline.set(key, self._seal.close_checkpoint(text, call_id), ex=ttl_s)
            else:
                pipeline.delete(key)
        return taken

    def put_back(self, taken: dict[str, tuple[bytes, float]]) -> None:
        """For the next try, but for what a newer one has replaced."""
        for call_id, kept in taken.items():
            self._by_call.setdefault(call_id, kept)


def opened(seal: Seal, sealed: bytes | str | None, call_id: str) -> Any:
    """The data of a stored checkpoint; None when there is none that can be believed."""
    if not isinstance(sealed, bytes):
        return None
    try:
        return seal.open_checkpoint(sealed, call_id)
    except Refused as refusal:
        log.warning("checkpoint_refused", call_id=call_id, reason=str(refusal))
        return None


class LoopCheckpoints:
    """Writes from an event loop that no tool blocks."""

    # Not a `Batcher`: a newer checkpoint takes the place of one that waits, also of one that could not be written, and
    # any thread may put one.

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._waiting = Waiting(keys, seal)
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None

    def keep(self, context: Context, text: bytes) -> None:
        """Take a checkpoint over from a tool, to be written at once."""
        self._waiting.put(context, text)
        # Always: whether a send is just ending cannot be seen from another thread.
        self._loop.call_soon_threadsafe(self._start_sending)

    def found(self, call_id: str) -> None:
        """An earlier attempt at a call has left a checkpoint."""
        self._waiting.found(call_id)

    def leave(self, call_id: str) -> None:
        """The call will go on elsewhere, from what was kept."""
        self._waiting.put_end(call_id, settled=False)

    def end(self, call_id: str, *, settled: bool) -> None:
        """The call is settled, here or by another worker; what was kept is removed by the one that settled it."""
        if self._waiting.put_end(call_id, settled=settled):
            self._start_sending()

    async def aclose(self) -> None:
        """Write what waits, unless Redis is away."""
        self._start_sending()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=FLUSH_WITHIN_S)
            self._sending.cancel()

    def _start_sending(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._waiting:
            pipeline = self._client.pipeline(transaction=False)
            taken = self._waiting.take(pipeline)
            try:
                await pipeline.execute()
            except COMMAND_FAILED as error:
                self._waiting.put_back(taken)
                log.info("checkpoint_not_written", error=str(error))
                await asyncio.sleep(RETRY_S)


class ThreadCheckpoints:
    """Writes from a thread of its own, where tools block the loop they run on. The thread starts when it is needed."""

    def __init__(self, settings: Settings, seal: Seal) -> None:
        self._waiting = Waiting(settings.keys, seal)
        self._settings = settings
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def keep(self, context: Context, text: bytes) -> None:
        """Take a checkpoint over from a tool, to be written at once."""
        self._waiting.put(context, text)
        self._wake()

    def found(self, call_id: str) -> None:
        """An earlier attempt at a call has left a checkpoint."""
        self._waiting.found(call_id)

    def leave(self, call_id: str) -> None:
        """The call will go on elsewhere, from what was kept."""
        self._waiting.put_end(call_id, settled=False)

    def end(self, call_id: str, *, settled: bool) -> None:
        """The call is settled, here or by another worker; what was kept is removed by the one that settled it."""
        if self._waiting.put_end(call_id, settled=settled):
            self._wake()

    async def aclose(self) -> None:
        """Nothing: the thread writes at once what waits."""

    def _wake(self) -> None:
        self._changed.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._send_forever, name="checkpoints", daemon=True)
                    self._thread.start()

    def _send_forever(self) -> None:
        client = connect(self._settings)
        while self._changed.wait():
            self._changed.clear()
            pipeline = client.pipeline(transaction=False)
            taken = self._waiting.take(pipeline)
            try:
                pipeline.execute()
            except COMMAND_FAILED as error:
                self._waiting.put_back(taken)
                log.info("checkpoint_not_written", error=str(error))
                self._changed.set()
                time.sleep(RETRY_S)
