"""What is stored under the secret that is only accepted still: lost to everybody once that secret is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson
import redis.asyncio
from pydantic import SecretStr

from toolfleet.errors import Refused
from toolfleet.keys import REVOKED, Keys
from toolfleet.orchestrator.store.chain import RawEntry, Vouched, beginning, believed
from toolfleet.orchestrator.store.packed import unpacked
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import Priority
from toolfleet.waiting.standing import messages_in_rooms
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
    for kind, pattern, open_ in _strings(keys):
        async for key in client.scan_iter(pattern, count=AT_ONCE, _type="string"):
            yield Sealed(kind, partial(open_, await client.get(key), key))
    async for key in client.scan_iter(keys.job("*"), count=AT_ONCE, _type="hash"):
        yield Sealed("jobs", partial(_open_job, await client.hget(key, "record"), key))
    for digest, sealed in (await client.hgetall(keys.api_keys())).items():
        kind = "revocations of API keys" if text_of(digest) == REVOKED else "API keys"
        yield Sealed(kind, partial(_open_api_key, sealed, text_of(digest)))
    async for sealed in _runs(client, keys):
        yield sealed
    async for sealed in _calls(client, keys):
        yield sealed


def _strings(keys: Keys) -> Sequence[tuple[str, str, Callable[[bytes | None, bytes, Seal], object]]]:
    return (
        ("results", keys.result("*"), _open_result),
        ("checkpoints", keys.checkpoint("*"), _open_checkpoint),
        ("handles", keys.handle("*"), _open_kept),
        ("conversations", keys.conversation("*"), _open_kept),
        ("secret arguments", keys.arguments("*"), _open_kept),
        ("grants of artifacts", keys.artifact_grant("*", "*"), _open_grant),
        ("idempotent answers", keys.idempotent("*"), _open_kept),
    )


async def _runs(client: Any, keys: Keys) -> AsyncIterator[Sealed]:
    for name in await client.zrange(keys.runs(), 0, -1):
        run_id = text_of(name)
        entries = unpacked(await client.xrange(keys.run(run_id)))
        vouched = await client.hget(keys.head(run_id), "vouched")
        yield Sealed("runs", partial(_open_run, run_id, entries, Vouched.read(vouched) if vouched else None))


async def _calls(client: Any, keys: Keys) -> AsyncIterator[Sealed]:
    for level in Priority:
        async for key in client.scan_iter(keys.queue("*", level), count=AT_ONCE, _type="stream"):
            for _, fields in await client.xrange(key, count=MESSAGES_AT_ONCE):
                yield Sealed("calls in queues", partial(_open_call, fields))
    async for key in client.scan_iter(keys.scheduled("*"), count=AT_ONCE, _type="zset"):
        for member in await client.zrange(key, 0, MESSAGES_AT_ONCE):
            yield Sealed("calls in queues", partial(_open_scheduled, member))
    async for fields in messages_in_rooms(client, keys, AT_ONCE):
        yield Sealed("calls in queues", partial(_open_call, fields))


def _open_result(sealed: bytes | None, key: bytes, seal: Seal) -> object:
    return seal.open_result(sealed or b"", _id_in(key))


def _open_job(sealed: bytes | None, key: bytes, seal: Seal) -> object:
    return seal.open_job(sealed or b"", _id_in(key))


def _open_checkpoint(sealed: bytes | None, key: bytes, seal: Seal) -> object:
    return seal.open_checkpoint(sealed or b"", _id_in(key))


def _open_kept(sealed: bytes | None, key: bytes, seal: Seal) -> object:
    return seal.open_kept(sealed or b"", text_of(key))


def _open_grant(sealed: bytes | None, key: bytes, seal: Seal) -> object:
    _, _, run_id, artifact = text_of(key).rsplit(":", 3)
    return seal.open_grant(sealed or b"", run_id, artifact)


def _open_run(
    run_id: str, entries: list[tuple[bytes, dict[bytes, bytes]]], vouched: Vouched | None, seal: Seal
) -> object:
    raw = [RawEntry.read(entry_id, fields) for entry_id, fields in entries]
    if len(believed(seal, run_id, beginning(run_id), raw, vouched)) < len(raw):
        raise Refused("not sealed to its end")
    return raw


def _open_api_key(sealed: bytes, digest: str, seal: Seal) -> object:
    return seal.open_api_key(sealed, digest)


def _open_call(fields: dict[bytes, bytes], seal: Seal) -> object:
    try:
        text, mac = orjson.loads(fields[b"b"])[0]
    except (ValueError, LookupError, TypeError):
        raise Refused("not an envelope") from None
    return seal.open_call(text, mac)


def _open_scheduled(member: bytes, seal: Seal) -> object:
    try:
        _, *flat = orjson.loads(member)
        fields = {name.encode(): text.encode() for name, text in zip(flat[::2], flat[1::2], strict=True)}
    except (ValueError, TypeError, AttributeError):
        raise Refused("not a message") from None
    return _open_call(fields, seal)


def _opens(seal: Seal, sealed: Sealed) -> bool:
    try:
        sealed.open(seal)
    except (Refused, ValueError):
        return False
    return True


def _id_in(key: bytes) -> str:
    return text_of(key).split(":", 2)[2]
