"""Messages that cannot be handled: kept with their reason, counted, never dropped in silence."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import stamina
import structlog

from toolfleet.keys import DEAD_LETTERS_MAX, Keys
from workers.delivery import Delivery

log = structlog.get_logger("toolfleet.workers")


async def bury(client: redis.asyncio.Redis, keys: Keys, delivery: Delivery, reason: str) -> None:
    """Write a delivery down among the dead letters, however long Redis is away.

    The message itself is acknowledged by the caller, afterwards.
    """
    fields: dict[Any, Any] = {
        "reason": reason,
        "task": delivery.task,
        "id": delivery.task_id,
        "deliveries": delivery.deliveries,
        "text": str(delivery.text)[:65536],
        "mac": str(delivery.mac)[:128],
    }
    async for attempt in stamina.retry_context(on=redis.RedisError, attempts=None, timeout=None, wait_max=2.0):
        with attempt:
            pipeline = client.pipeline(transaction=True)
            pipeline.xadd(keys.dead_letters(), fields, maxlen=DEAD_LETTERS_MAX, approximate=True)
            pipeline.hincrby(keys.counters(), "dead_letters", 1)
            pipeline.hincrby(keys.counters(), f"dead:{reason}", 1)
            await pipeline.execute()
    log.warning("dead_letter", call_id=delivery.task_id, tool=delivery.task, reason=reason)
