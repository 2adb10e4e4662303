"""Results of read-only calls that are given again: sealed for their question, and until when they hold, in Redis.

Knows digests and results. What makes two questions the same, whoever asks decides.
"""

from __future__ import annotations

from typing import Final, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.calls import Record, Returned
from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.logs import FactLog
from toolfleet.wire import Seal

log = FactLog("toolfleet.kept_results")

MAX_BYTES: Final = 256 * 1024
"""A larger result is not kept: Redis should not fill up with what is quickly asked again."""


class _Kept(Record):
    """What is sealed: a result, and until when it is given, by the server's clock. None: each asks for itself."""

    until_unix_s: float
    result: Returned | None


class KeptResults:
    """Keeps results under the digests of their questions. Its methods raise what the client raises."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._client = client
        self._keys = keys
        self._seal = seal

    async def get(self, digest: str) -> Returned | None:
        """Return the result that the fleet itself kept under this digest, unless its time is over."""
        sealed = cast("bytes | None", await self._client.get(self._keys.cached(digest)))
        return None if sealed is None else await self.believed(digest, sealed)

    async def believed(self, digest: str, sealed: bytes) -> Returned | None:
        """Return the result in what stands under a digest; None for what is not ours, or holds no longer."""
        key = self._keys.cached(digest)
        try:
            kept = _Kept.model_validate_json(self._seal.open_kept(sealed, key), extra="ignore")
        except (Refused, ValidationError) as error:
            why = str(error) if isinstance(error, Refused) else "wrong shape"
            log.warning("kept_result_not_believed", why=why)
            return None
        # The key's own end is anybody's to take away.
        return kept.result if _unix_s(await self._client.time()) < kept.until_unix_s else None

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result; of one that is too large, that nobody need wait for another's."""
        key = self._keys.cached(digest)
        until_unix_s = _unix_s(await self._client.time()) + ttl_s
        text = _Kept(until_unix_s=until_unix_s, result=result).model_dump_json().encode()
        if len(text) > MAX_BYTES:
            text = _Kept(until_unix_s=until_unix_s, result=None).model_dump_json().encode()
        await self._client.set(key, self._seal.close_kept(text, key), px=max(1, round(ttl_s * 1000)))


def _unix_s(time: tuple[int, int]) -> float:
    seconds, microseconds = time
    return seconds + microseconds / 1e6
