"""What is stored under the secret that is only accepted still: lost to everybody once that secret is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import orjson
import redis.asyncio
from pydantic import SecretStr

from toolfleet.errors import Refused
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

AT_ONCE: Final = 500


async def sealed_before(client: redis.asyncio.Redis, settings: Settings) -> Counter[str]:
    """Count what the current secret does not open and the previous one does, by its kind. Raises StoreUnreachable."""
    own, both = Seal(settings.model_copy(update={"previous_secret": SecretStr("")})), Seal(settings)
    found: Counter[str] = Counter()

    def note(kind: str, opened: Callable[[Seal], object]) -> None:
        if not _opens(own, opened) and _opens(both, opened):
            found[kind] += 1

    async for key in client.scan_iter(settings.keys.result("*"), count=AT_ONCE, _type="string"):
        call_id, sealed = _id_in(key), await client.get(key)
        note("results", lambda seal: seal.open_result(sealed or b"", call_id))  # noqa: B023  # called at once
    async for key in client.scan_iter(settings.keys.job("*"), count=AT_ONCE, _type="hash"):
        call_id, sealed = _id_in(key), await client.hget(key, "record")
        note("jobs", lambda seal: seal.open_job(sealed or b"", call_id))  # noqa: B023  # called at once
    async for key in client.scan_iter(settings.keys.checkpoint("*"), count=AT_ONCE, _type="string"):
        call_id, sealed = _id_in(key), await client.get(key)
        note("checkpoints", lambda seal: seal.open_checkpoint(sealed or b"", call_id))  # noqa: B023  # called at once
    for digest, sealed in (await client.hgetall(settings.keys.api_keys())).items():
        note("API keys", lambda seal: seal.open_api_key(sealed, digest.decode()))  # noqa: B023  # called at once
    async for key in client.scan_iter(settings.keys.queue("*", Priority.NORMAL)[:-1] + "*", _type="stream"):
        for _, fields in await client.xrange(key, count=10_000):
            text, mac = _envelope(fields)
            note("calls in queues", lambda seal: seal.open_call(text, mac))  # noqa: B023  # called at once
    return found


def _opens(seal: Seal, opened: Callable[[Seal], object]) -> bool:
    try:
        opened(seal)
    except (Refused, ValueError):
        return False
    return True


def _id_in(key: bytes) -> str:
    return key.decode(errors="replace").split(":", 2)[2]


def _envelope(fields: Any) -> tuple[object, object]:
    try:
        text, mac = orjson.loads(fields[b"b"])[0]
    except (ValueError, LookupError, TypeError):
        return None, None
    return text, mac
