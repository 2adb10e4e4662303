"""Progress of running calls into Redis: the newest of each call, a few times a second, for all calls together.

May be reported from any thread; never blocks a tool and never fails it. What Redis does not take is lost: the next
report says more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import redis.asyncio

from toolfleet.calls import Progress, ToolCall
from toolfleet.keys import REPLIES_MAX, REPLIES_TTL_S, RESULT_TTL_S, Keys
from toolfleet.wire import Seal
from toolfleet.workers.delivery.newest import NewestOfEach, SendingLoop

INTERVAL_S: Final = 0.2
"""A person sees no more than five steps a second; a tool may report a thousand."""


class ProgressReporter:
    """Sends the progress of calls from one event loop."""

    def __init__(self, loop: SendingLoop, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        """`client` belongs to `loop`, which no tool may block."""
        self._client = client
        self._keys = keys
        self._seal = seal
        self._newest: NewestOfEach[tuple[ToolCall, Progress]] = NewestOfEach(
            loop, self._send, send_last=self._tell, is_owed=False
        )

    def of(self, call: ToolCall) -> Callable[[Progress], None]:
        """Return a function that reports progress of `call`, from any thread."""

        def report(progress: Progress) -> None:
            self._newest.put(call.call_id, (call, progress))

        return report

    def waits(self, call: ToolCall) -> bool:
        """Whether some progress of a call is not sent yet."""
        return self._newest.waits(call.call_id)

    async def end(self, call: ToolCall) -> None:
        """Return when the last progress of a call is sent, before its result is, or when that takes too long.

        Not interrupted by a cancellation: the call has its result, which would be lost.
        """
        with suppress(asyncio.CancelledError):
            await self._newest.send_last(call.call_id)

    async def _send(self, newest: dict[str, tuple[ToolCall, Progress]]) -> None:
        try:
            await self._tell(newest)
        finally:
            await asyncio.sleep(INTERVAL_S)  # what is reported meanwhile goes together

    async def _tell(self, newest: dict[str, tuple[ToolCall, Progress]]) -> None:
        """Keep each for whoever asks, and push it to whoever waits."""
        pipeline = self._client.pipeline(transaction=False)
        for call, progress in newest.values():
            sealed = self._seal.close_progress(progress, call.call_id)
            replies = self._keys.replies(call.reply_to)
            pipeline.set(self._keys.progress(call.call_id), sealed, ex=RESULT_TTL_S)
            pipeline.xadd(replies, {"c": call.call_id, "p": sealed}, maxlen=REPLIES_MAX, approximate=True)
            pipeline.expire(replies, REPLIES_TTL_S)
        await pipeline.execute()
