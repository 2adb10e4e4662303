"""Results that nobody of the fleet has sealed: none at all. A true one takes their place, and they are counted.

Whoever ends a call stores its result only where there is none, in one script that cannot check seals; so it looks here
when it hears that there is one.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

import redis.asyncio

from toolfleet.calls import Submitted
from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.logs import FactLog
from toolfleet.replies import REPLACE_RESULT
from toolfleet.wire import Seal, Unread

log = FactLog("toolfleet")

COUNTED_AS: Final = "forged_results"

ALREADY: Final = 2
"""What scripts that end a call reply where it has a result."""


class TrueResult(NamedTuple):
    """The sealed result of a call (empty while there is none yet), and to whom it is told."""

    call_id: str
    sealed: bytes
    reply_to: str


def is_forged(seal: Seal, sealed: bytes, call_id: str) -> bool:
    """Whether the fleet has not sealed what is stored as the result of a call; b"" for what is not even a string."""
    try:
        found = seal.open_result(sealed, call_id)
    except Unread:
        return False  # a newer version's
    except Refused as refusal:
        log.warning("result_refused", call_id=call_id, reason=str(refusal))
        return True
    # Sealed to be told, never to be stored: it ends no call.
    return isinstance(found, Submitted)


def replacing(keys: Keys, result: TrueResult, forged: bytes) -> list[str | bytes]:
    """The arguments of REPLACE_RESULT that put this result there."""
    return [keys.result(""), result.call_id, forged, result.sealed, keys.replies(result.reply_to)]


async def replace_forged(client: redis.asyncio.Redis, keys: Keys, seal: Seal, result: TrueResult) -> int:
    """Put a result in the place of a forged one, if one is there; what came of it, as of any result.

    Without a result, only take the forged one away. Raises StoreUnreachable.
    """
    # Of a key of another type, MGET says nothing and GET raises; EXISTS knows of it.
    key = keys.result(result.call_id)
    [found] = cast("list[bytes | None]", await client.mget([key]))
    if found is None and not await client.exists(key):
        return ALREADY
    if not is_forged(seal, found or b"", result.call_id):
        return ALREADY
    await client.hincrby(keys.counters(), COUNTED_AS, 1)
    replace = client.register_script(REPLACE_RESULT)
    outcome: int = await replace(args=replacing(keys, result, found or b""))
    return outcome
