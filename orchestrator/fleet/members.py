"""What the live orchestrators show of their secret. Reads only."""

from __future__ import annotations

from typing import cast

import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.membership import Proofs, proofs_by_name
from toolfleet.skipped import text_of


async def orchestrators(client: redis.asyncio.Redis, keys: Keys) -> Proofs:
    """Return the proofs of each live orchestrator, by its id. Raises StoreUnreachable."""
    found = cast("list[bytes]", await client.zrange(keys.orchestrators(), 0, -1))
    names = [text_of(name) for name in found]
    if not names:
        return {}
    shown = cast("list[bytes | None]", await client.mget([keys.orchestrator_proofs(name) for name in names]))
    return proofs_by_name(names, shown)
