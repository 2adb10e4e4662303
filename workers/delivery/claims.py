"""Claims: which delivery may have the effect of a call that must happen at most once.

The stream transport claims most calls while it reads them; this is for deliveries it did not, and for other brokers.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import redis
import redis.asyncio
import stamina

from toolfleet.calls import ToolCall
from toolfleet.keys import CLAIM_GRACE_S, Keys
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.streams import GROUP
from toolfleet.workers.delivery.message import Delivery

DUPLICATES: Final = "duplicate_messages"
"""The counter of messages whose call another message has claimed; the transport counts under the same name."""


async def is_still_ours(client: redis.asyncio.Redis, delivery: Delivery) -> bool:
    """Whether the message of this delivery is still this worker's, for what was found out to be acted upon."""
    at = delivery.entry_id
    async for attempt in stamina.retry_context(on=COMMAND_FAILED, attempts=None, timeout=None, wait_max=2.0):
        with attempt:
            pending = await client.xpending_range(delivery.stream, GROUP, at, at, 1, delivery.consumer)
    return bool(pending)


class Claimer:
    """Claims calls of one event loop; what comes in while a batch is under way shares the next one."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._waiting: list[tuple[Delivery, ToolCall, asyncio.Future[bool]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def claim(self, delivery: Delivery, call: ToolCall) -> bool:
        """Whether this delivery is the one that may have the effect; without Redis, wait for it."""
        loop = asyncio.get_running_loop()
        claimed: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((delivery, call, claimed))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        return await claimed

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._send(batch)
        finally:
            self._flushing = None

    async def _send(self, batch: list[tuple[Delivery, ToolCall, asyncio.Future[bool]]]) -> None:
        # The claimant is the same at each try: a claim whose reply was lost is found to be ours.
        claimants = [delivery.claimant for delivery, _, _ in batch]
        async for attempt in stamina.retry_context(on=COMMAND_FAILED, attempts=None, timeout=None, wait_max=2.0):
            with attempt:
                holders = await self._set([call for _, call, _ in batch], claimants)
        won = [
            holder is None or holder.decode() == claimant for holder, claimant in zip(holders, claimants, strict=True)
        ]
        for (_, _, claimed), is_ours in zip(batch, won, strict=True):
            if not claimed.done():
                claimed.set_result(is_ours)
        await self._count_duplicates(won.count(False))

    async def _set(self, calls: list[ToolCall], claimants: list[str]) -> list[bytes | None]:
        pipeline = self._client.pipeline(transaction=False)
        for call, claimant in zip(calls, claimants, strict=True):
            pipeline.set(self._keys.claim(call.call_id), claimant, nx=True, get=True, ex=_ttl_s(call))
        holders: list[bytes | None] = await pipeline.execute()
        return holders

    async def _count_duplicates(self, duplicates: int) -> None:
        if duplicates:
            with suppress(*COMMAND_FAILED):
                await self._client.hincrby(self._keys.counters(), DUPLICATES, duplicates)


def _ttl_s(call: ToolCall) -> int:
    # A replay after the deadline is refused for its age, so the claim may be forgotten soon after.
    return max(1, int(call.deadline_unix_s - time.time())) + CLAIM_GRACE_S
