"""Claims: which delivery may have the effect of a call that must happen at most once.

The stream transport claims most calls while it reads them; this is for deliveries it did not, and for other brokers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import redis
import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.calls import ToolCall
from toolfleet.forged import is_forged
from toolfleet.keys import CLAIM_GRACE_S, Keys
from toolfleet.outages import until_redis_is_back
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery

MAX_BATCH: Final = 500
"""Claims in one pipeline."""

DUPLICATES: Final = "duplicate_messages"
"""The counter of messages whose call another message has claimed; the transport counts under the same name."""


async def is_still_ours(client: redis.asyncio.Redis, delivery: Delivery) -> bool:
    """Return whether the message of this delivery is still this worker's. Waits for Redis however long it is away."""
    at = delivery.entry_id

    async def look() -> bool:
        return bool(await client.xpending_range(delivery.stream, GROUP, at, at, 1, delivery.consumer))

    return await until_redis_is_back(look)


class Claimer:
    """Claims the calls of one event loop, in batches."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._client = client
        self._keys = keys
        self._seal = seal
        self._batcher = Batcher(self._send, max_batch=MAX_BATCH)

    async def claim(self, delivery: Delivery, call: ToolCall) -> bool:
        """Claim a call. Returns whether this delivery may have the effect: not of a call that has its result already.

        Waits for Redis however long it is away.
        """
        # The claimant is the same at each try: a claim whose reply was lost is found to be ours.
        is_ours = await self._batcher.add((call, delivery.claimant))
        if not is_ours:
            await self._count_duplicate()
        return is_ours

    async def _send(self, claims: Sequence[tuple[ToolCall, str]]) -> list[bool]:
        async def claim() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for call, claimant in claims:
                key, ttl_s = self._keys.claim(call.call_id), _ttl_s(call)
                pipeline.set(key, claimant, nx=True, get=True, ex=ttl_s)
                # How long the transport has claimed it for, nobody has signed.
                pipeline.expire(key, ttl_s, gt=True)
                pipeline.mget([self._keys.result(call.call_id)])
            return await pipeline.execute()

        replies = await until_redis_is_back(claim)
        return [
            (holder is None or text_of(holder) == claimant) and not self._is_done(sealed, call)
            for holder, [sealed], (call, claimant) in zip(replies[::3], replies[2::3], claims, strict=True)
        ]

    def _is_done(self, sealed: bytes | None, call: ToolCall) -> bool:
        """Whether the call has a true result: then whoever took its claim away wants it to happen again."""
        return sealed is not None and not is_forged(self._seal, sealed, call.call_id)

    async def _count_duplicate(self) -> None:
        with suppress(*COMMAND_FAILED):
            await self._client.hincrby(self._keys.counters(), DUPLICATES, 1)


def _ttl_s(call: ToolCall) -> int:
    # A replay after the deadline is refused for its age, so the claim may be forgotten soon after.
    return max(1, int(call.deadline_unix_s - time.time())) + CLAIM_GRACE_S
