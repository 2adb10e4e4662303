"""Messages that cannot be handled: kept with their reason, counted, never dropped in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
import redis
import redis.asyncio

from toolfleet.keys import DEAD_LETTERS_MAX, Keys
from toolfleet.logs import FactLog
from toolfleet.masks import MASK, has_secrets, mask_arguments
from toolfleet.outages import until_redis_is_back
from toolfleet.workers.delivery.message import Delivery

log = FactLog("toolfleet.workers")

SHOWN_CHARS: Final = 65536
"""What is kept of an envelope. A longer one is not parsed either, to look for secrets in it: nobody has believed it."""


async def bury(
    client: redis.asyncio.Redis,
    keys: Keys,
    delivery: Delivery,
    reason: str,
    input_schema: Mapping[str, Any] | None = None,
) -> None:
    """Write a delivery down among the dead letters, however long Redis is away.

    Where `input_schema` has secrets they are masked; such a letter has lost its signature and cannot be replayed.
    The message itself is acknowledged by the caller, afterwards.
    """
    fields: dict[Any, Any] = {
        "reason": reason,
        "task": delivery.task,
        "id": delivery.task_id,
        "deliveries": delivery.deliveries,
        "text": _shown(str(delivery.text), input_schema)[:SHOWN_CHARS],
        "mac": str(delivery.mac)[:128],
    }

    async def write_down() -> None:
        pipeline = client.pipeline(transaction=True)
        pipeline.xadd(keys.dead_letters(), fields, maxlen=DEAD_LETTERS_MAX, approximate=True)
        pipeline.hincrby(keys.counters(), "dead_letters", 1)
        pipeline.hincrby(keys.counters(), f"dead:{reason}", 1)
        await pipeline.execute()

    await until_redis_is_back(write_down)
    log.warning("dead_letter", call_id=delivery.task_id, tool=delivery.task, reason=reason)


def _shown(text: str, input_schema: Mapping[str, Any] | None) -> str:
    """Return an envelope, whoever wrote it, without the secrets in its arguments."""
    if input_schema is None or not has_secrets(input_schema):
        return text
    if len(text) > SHOWN_CHARS:
        return MASK
    try:
        envelope = orjson.loads(text)
        envelope["arguments"] = mask_arguments(envelope["arguments"], input_schema)
        return orjson.dumps(envelope).decode()
    except (ValueError, TypeError, LookupError, AttributeError):
        return MASK
