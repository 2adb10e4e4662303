"""The keys of a fleet for commands: of its one Redis or, alike, of every shard that it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

from toolfleet.connections import connect_async
from toolfleet.errors import CallerError, StoreUnreachable
from toolfleet.orchestrator.doors.cli.telling import warn
from toolfleet.orchestrator.doors.http.key_store import ApiKey, Keyring, digest_of
from toolfleet.settings import Settings
from toolfleet.wire import Seal


class KeyNotFound(CallerError):
    """No key, or more than one, has this id."""


class Keyrings:
    """Keyrings by the shards that they are on. A key is the same on each, so that one opens the door of all."""

    def __init__(self, keyrings: Mapping[str, Keyring]) -> None:
        self._keyrings = keyrings

    async def add(self, name: str, **options: Any) -> tuple[str, ApiKey]:
        """Make a key; `options` are those of `Keyring.add`. Raises StoreUnreachable where any shard cannot be asked."""
        first, *others = self._keyrings.values()
        for keyring in others:
            await keyring.is_empty()  # so that a key is made on all of them, or on none
        key, stored = await first.add(name, **options)
        for keyring in others:
            await keyring.put(digest_of(key), stored)
        return key, stored

    async def share(self) -> int:
        """Give each shard the keys that others have, and take away what was revoked on any. Returns how many of both.

        Raises StoreUnreachable where any shard cannot be asked.
        """
        found = [(keyring, *await keyring.by_digest()) for keyring in self._keyrings.values()]
        everywhere = {digest: key for _, stored, _ in found for digest, key in stored.items()}
        revoked = frozenset().union(*(ids for _, _, ids in found))
        changed = 0
        for keyring, stored, _ in found:
            for digest, key in everywhere.items():
                if key.key_id in revoked and digest in stored:
                    await keyring.revoke(digest)
                elif key.key_id not in revoked and digest not in stored:
                    await keyring.put(digest, key)
                else:
                    continue
                changed += 1
        return changed

    async def all(self) -> list[ApiKey]:
        """Return every key, the oldest first, and say which shards could not be asked. Raises StoreUnreachable."""
        found: dict[str, ApiKey] = {}
        away: dict[str, StoreUnreachable] = {}
        for shard, keyring in self._keyrings.items():
            try:
                found |= {key.key_id: key for key in await keyring.all()}
            except StoreUnreachable as error:
                away[shard] = error
        if len(away) == len(self._keyrings):
            raise next(iter(away.values()))
        for shard, why in away.items():
            warn(f"shard {shard}: {why}")
        return sorted(found.values(), key=lambda key: key.created_unix_s)

    async def revoke(self, key_id: str) -> ApiKey:
        """Take a key away wherever it is. Raises KeyNotFound, and StoreUnreachable where it may still be good."""
        revoked: ApiKey | None = None
        away: dict[str, StoreUnreachable] = {}
        for shard, keyring in self._keyrings.items():
            try:
                revoked = await keyring.revoke(key_id) or revoked
            except StoreUnreachable as error:
                away[shard] = error
        if away and len(self._keyrings) > 1:
            taken = f"key {revoked.key_id} is revoked on the others" if revoked else "the others have no such key"
            raise StoreUnreachable(
                f"shard {', '.join(away)} cannot be asked, and the key is good there until you repeat this: {taken}"
            )
        for why in away.values():
            raise why
        if revoked is None:
            raise KeyNotFound(f"no key, or more than one, has an id that begins with {key_id}: toolfleet keys list")
        return revoked


@asynccontextmanager
async def keyrings_of(settings: Settings) -> AsyncIterator[Keyrings]:
    """The keyrings of every Redis that is meant."""
    async with AsyncExitStack() as stack:
        keyrings = {}
        for each in settings.of_each_redis:
            client = await stack.enter_async_context(aclosing(connect_async(each)))
            keyrings[each.shard] = Keyring(client, each, Seal(each))
        yield Keyrings(keyrings)
