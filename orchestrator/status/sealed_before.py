"""What is stored under the secret that is only accepted still: lost to everybody once that secret is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import orjson
import redis.asyncio
from pydantic import SecretStr

from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

AT_ONCE: Final = 500

MESSAGES_AT_ONCE: Final = 10_000
"""Messages of one stream that are looked at; where there are more, those are counted."""


class Sealed(NamedTuple):
    """Something that a secret vouches for. `open` raises Refused for a seal that does not."""

    kind: str
    open: Callable[[Seal], object]


async def sealed_before(client: redis.asyncio.Redis, settings: Settings) -> Counter[str]:
    """Count what the current secret does not open and the previous one does, by its kind. Raises StoreUnreachable."""
    current, both = Seal(settings.model_copy(update={"previous_secret": SecretStr("")})), Seal(settings)
    found: Counter[str] = Counter()
    async for sealed in _all(client, settings.keys):
        if not _opens(current, sealed) and _opens(both, sealed):
            found[sealed.kind] += 1
    return found


async def _all(client: Any, keys: Keys) -> AsyncIterator[Sealed]:
    async for key in client.scan_iter(keys.result("*"), count=AT_ONCE, _type="string"):
        yield Sealed("results", partial(_open_result, await client.get(key), _id_in(key)))
    async for key in client.scan_iter(keys.job("*"), count=AT_ONCE, _type="hash"):
        yield Sealed("jobs", partial(_open_job, await client.hget(key, "record"), _id_in(key)))
    async for key in client.scan_iter(keys.checkpoint("*"), count=AT_ONCE, _type="string"):
        yield Sealed("checkpoints", partial(_open_checkpoint, await client.get(key), _id_in(key)))
    for digest, sealed in (await client.hgetall(keys.api_keys())).items():
        yield Sealed("API keys", partial(_open_api_key, sealed, digest.decode(errors="replace")))
    for level in Priority:
        async for key in client.scan_iter(keys.queue("*", level), count=AT_ONCE, _type="stream"):
            for _, fields in await client.xrange(key, count=MESSAGES_AT_ONCE):
                yield Sealed("calls in queues", partial(_open_call, fields))


def _open_result(sealed: bytes | None, call_id: str, seal: Seal) -> object:
    return seal.open_result(sealed or b"", call_id)


def _open_job(sealed: bytes | None, call_id: str, seal: Seal) -> object:
    return seal.open_job(sealed or b"", call_id)


def _open_checkpoint(sealed: bytes | None, call_id: str, seal: Seal) -> object:
    return seal.open_checkpoint(sealed or b"", call_id)


def _open_api_key(sealed: bytes, digest: str, seal: Seal) -> object:
    return seal.open_api_key(sealed, digest)


def _open_call(fields: dict[bytes, bytes], seal: Seal) -> object:
    try:
        text, mac = orjson.loads(fields[b"b"])[0]
    except (ValueError, LookupError, TypeError):
        raise Refused("not an envelope") from None
    return seal.open_call(text, mac)


def _opens(seal: Seal, sealed: Sealed) -> bool:
    try:
        sealed.open(seal)
    except (Refused, ValueError):
        return False
    return True


def _id_in(key: bytes) -> str:
    return key.decode(errors="replace").split(":", 2)[2]
