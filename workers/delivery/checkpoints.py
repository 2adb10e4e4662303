"""Checkpoints of running calls into Redis: the newest of each call, as soon as it can be written, until it is written.

May be kept from any thread and never blocks a tool. What is in a checkpoint is the tool's business.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

import redis.asyncio

from toolfleet.context import Context
from toolfleet.errors import Refused
from toolfleet.keys import CLAIM_GRACE_S, Keys
from toolfleet.logs import FactLog
from toolfleet.wire import Seal
from toolfleet.workers.delivery.newest import NewestOfEach, SendingLoop

log = FactLog("toolfleet.workers")

FLUSH_WITHIN_S: Final = 2.0
"""How long the end of a worker waits for checkpoints that are not written yet."""


class _Kept(NamedTuple):
    """A checkpoint to be written; without text it is to be removed."""

    text: bytes = b""
    deadline_unix_s: float = 0.0


class Checkpoints:
    """Keeps the checkpoints of calls, from one event loop."""

    def __init__(self, loop: SendingLoop, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        """`client` belongs to `loop`, which no tool may block."""
        self._client = client
        self._keys = keys
        self._seal = seal
        self._with_checkpoint: set[str] = set()
        """The calls of which something may be stored."""
        # A removal waits in the same place as a checkpoint of its call, so it cannot be overtaken by one.
        self._newest: NewestOfEach[_Kept] = NewestOfEach(loop, self._write, is_owed=True)

    def keep(self, context: Context, text: bytes) -> None:
        """Take a checkpoint over from a tool, to be written at once. May be called on any thread."""
        self._with_checkpoint.add(context.call_id)
        self._newest.put(context.call_id, _Kept(text, context.deadline_unix_s))

    def note_found(self, call_id: str) -> None:
        """Note that an earlier attempt at a call has left a checkpoint."""
        self._with_checkpoint.add(call_id)

    def has(self, call_id: str) -> bool:
        """Return whether there is a checkpoint of a call, written or on its way."""
        return call_id in self._with_checkpoint

    async def written(self, call_id: str) -> None:
        """Return when the newest checkpoint of a call is written. Call it on any loop; Redis may take its time."""
        await self._newest.sent(call_id)

    def leave(self, call_id: str) -> None:
        """Leave what was kept of a call where it is: the call goes on elsewhere, from there."""
        self._with_checkpoint.discard(call_id)

    def end(self, call_id: str, *, settled: bool) -> None:
        """Forget a call that is over. What was kept of it is removed if it was settled here: `settled`."""
        if settled and call_id in self._with_checkpoint:
            self._newest.put(call_id, _Kept())
        self._with_checkpoint.discard(call_id)

    async def aclose(self) -> None:
        """Write what waits, unless Redis is away. Call it on the loop that writes."""
        await self._newest.drain(FLUSH_WITHIN_S)

    async def _write(self, newest: dict[str, _Kept]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call_id, (text, deadline_unix_s) in newest.items():
            key = self._keys.checkpoint(call_id)
            if text:
                ttl_s = max(1, int(deadline_unix_s - time.time())) + CLAIM_GRACE_S
                pipeline.set(key, self._seal.close_checkpoint(text, call_id), ex=ttl_s)
            else:
                pipeline.delete(key)
        await pipeline.execute()


def open_checkpoint(seal: Seal, sealed: bytes | str | None, call_id: str) -> Any:
    """Return the data of a stored checkpoint; None when there is none that can be believed."""
    if not isinstance(sealed, bytes):
        return None
    try:
        return seal.open_checkpoint(sealed, call_id)
    except Refused as refusal:
        log.warning("checkpoint_refused", call_id=call_id, reason=str(refusal))
        return None
