"""API keys: who may do what for which tenant, and how often. Only their digests are stored.

A key is 256 random bits, so a plain SHA-256 of it cannot be searched: slow password hashes protect what people make up.
Knows Redis; must not know HTTP.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, cast

import redis.asyncio
from pydantic import Field

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.keys import REVOKED
from toolfleet.local.local_key import KEY_BYTES, PREFIX
from toolfleet.orchestrator.doors.http.revocations import NONE, Revocations
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.wire import Seal

ID_CHARS: Final = 12

WILD: Final = frozenset("*?[")
"""What makes a pattern of a tool's name."""

KNOWN_FOR_S: Final = 1.0
"""How long a key that was looked up is believed: a revoked one works for at most this long."""

KNOWN_MAX: Final = 10_000

MIN_RATE_PER_S: Final = 1 / 1800
"""The bucket of the slowest key is full again, and gone from Redis, within an hour."""

TAKE: Final = lua(__package__, "take_token")


class Scope(StrEnum):
    """What a key is good for. `payloads` includes `read`, `run` and `approve` include both, and `admin` all.

    `work` includes nothing else: a worker sees the calls of its tools.
    """

    READ = "read"
    """Look at the tenant's runs, handles and events, and at the fleet's tools and workers: not at what they hold."""
    PAYLOADS = "payloads"
    """Read arguments, results, messages, logs and artifacts."""
    RUN = "run"
    """Begin, stop and resume runs, call tools."""
    APPROVE = "approve"
    """Decide about calls that wait for a person."""
    ADMIN = "admin"
    """See what concerns all tenants: metrics."""
    WORK = "work"
    """Serve the tools that the key names, over HTTPS: `/v1/work`."""

    def covers(self, wanted: Scope) -> bool:
        """Return whether whoever has this one may do what needs the other."""
        match wanted:
            case Scope.READ:
                return self is not Scope.WORK
            case Scope.PAYLOADS:
                return self not in {Scope.READ, Scope.WORK}
            case _:
                return self in {wanted, Scope.ADMIN}


class Grant(Record):
    """What the sender of a request may do."""

    tenant: str = ""
    subject: str = ""
    """Who asks, as tools read it in `ctx.subject`."""
    scopes: tuple[Scope, ...] = (Scope.RUN,)
    tools: tuple[str, ...] = ("*",)
    """Names of tools, or patterns such as `search_*`."""

    def may(self, wanted: Scope) -> bool:
        """Return whether a request that needs `wanted` is allowed."""
        return any(scope.covers(wanted) for scope in self.scopes)

    def may_call(self, tool: str) -> bool:
        """Return whether the tool is among those allowed."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    @property
    def may_call_all(self) -> bool:
        """Whether no tool is kept from it."""
        return "*" in self.tools

    @property
    def owner(self) -> str:
        """Whom sessions and quotas belong to: one key, this machine's user, or everybody at an open server."""
        return self.subject or "anybody"

    @property
    def who(self) -> str:
        """Who acts with it, for histories that people read."""
        return self.subject or "anybody"

    def includes(self, other: Grant) -> bool:
        """Return whether it allows all that the other one does; in doubt about patterns it does not."""
        return all(self.may(scope) for scope in other.scopes) and all(
            self.may_call_all or tool in self.tools or (not WILD & set(tool) and self.may_call(tool))
            for tool in other.tools
        )


class ApiKey(Grant):
    """One key, without the key itself."""

    v: Literal[1] = 1
    key_id: str
    """How it is named: the first characters of its digest."""
    name: str = ""
    rate_per_s: Annotated[float, Field(ge=MIN_RATE_PER_S, le=1e6)] | None = None
    """Requests per second that it may make for long; a second's worth, and at least one, at once."""
    created_unix_s: float
    expires_unix_s: float | None = None

    @property
    def owner(self) -> str:
        """The key, by its id: another one of the same subject is another owner."""
        return f"key {self.key_id}"

    @property
    def who(self) -> str:
        """The key's name and whom it stands for; its id tells apart those that have the same."""
        return f"{self.name or 'key'} {self.key_id} ({self.subject})"

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_unix_s is not None and time.time() >= self.expires_unix_s


class Keyring:
    """The keys of one fleet, in Redis. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._known: OrderedDict[str, tuple[float, ApiKey]] = OrderedDict()
        self._read_revoked: bytes | None = None
        self._revoked = Revocations()
        """All revocations that this process has ever read: the stored ones may be taken away again."""
        self._take = client.register_script(TAKE)

    async def add(
        self,
        name: str = "",
        *,
        tenant: str = "",
        subject: str = "",
        scopes: tuple[Scope, ...] = (Scope.RUN,),
        tools: tuple[str, ...] = ("*",),
        rate_per_s: float | None = None,
        expires_unix_s: float | None = None,
    ) -> tuple[str, ApiKey]:
        """Make a key. Returns the key, which is told here and never again, and what is stored of it.

        Without a `subject` it is the key itself that asks, by its id.
        """
        key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        digest = digest_of(key)
        stored = ApiKey(
            key_id=digest[:ID_CHARS],
            name=name,
            tenant=tenant,
            subject=subject or digest[:ID_CHARS],
            scopes=scopes,
            tools=tools,
            rate_per_s=rate_per_s,
            created_unix_s=time.time(),
            expires_unix_s=expires_unix_s,
        )
        await self.put(digest, stored)
        return key, stored

    async def put(self, digest: str, stored: ApiKey) -> None:
        """Store a key that was made elsewhere, by its digest."""
        await self._write(digest, self._seal.close_api_key(stored.model_dump_json().encode(), digest))

    async def all(self) -> list[ApiKey]:
        """Return every key, the oldest first."""
        return sorted((await self._stored()).values(), key=lambda key: key.created_unix_s)

    async def by_digest(self) -> tuple[dict[str, ApiKey], frozenset[str]]:
        """Return every key by its digest, and the ids of those that were revoked."""
        stored = await self._stored()
        return stored, frozenset(self._revoked.expires_unix_s)

    async def revoke(self, key_id: str) -> ApiKey | None:
        """Take a key away and return it. Returns None unless exactly one key has this id or one that begins so."""
        found = {digest: key for digest, key in (await self._stored()).items() if key_id and digest.startswith(key_id)}
        if len(found) != 1:
            return None
        [(digest, key)] = found.items()
        await self._write(digest, None, Revocations(expires_unix_s={key.key_id: key.expires_unix_s}))
        return key

    async def find(self, key: str) -> ApiKey | None:
        """Return the key if it is one of ours and has not expired, otherwise None."""
        return await self.with_digest(digest_of(key))

    async def with_digest(self, digest: str) -> ApiKey | None:
        """Do the same for the key with a digest, as somebody shows that it was given before."""
        looked_up_s, found = self._known.get(digest, (0.0, None))
        if found is None or time.monotonic() - looked_up_s >= KNOWN_FOR_S:
            found = await self._look_up(digest)
        return None if found is None or found.is_expired else found

    async def is_good(self, key: str) -> bool:
        """Return whether a key is good at this moment, whatever was known of it a moment ago."""
        found = await self._look_up(digest_of(key))
        return found is not None and not found.is_expired

    async def is_empty(self) -> bool:
        """Return whether there is no key."""
        return not await self._stored()

    async def wait_s(self, key: ApiKey) -> float:
        """Count a request of this key. Returns 0 if it may be made now, otherwise the seconds to wait."""
        if key.rate_per_s is None:
            return 0.0
        wait_ms: int = await self._take(
            keys=[self._settings.keys.rate(key.key_id)], args=[key.rate_per_s, max(1.0, key.rate_per_s)]
        )
        return wait_ms / 1000

    async def _look_up(self, digest: str) -> ApiKey | None:
        reply = self._client.hmget(self._settings.keys.api_keys(), [digest, REVOKED])
        sealed, revoked = cast("list[bytes | None]", await cast("Awaitable[object]", reply))
        self._note_revoked(revoked)
        self._known.pop(digest, None)
        # Only keys that exist are remembered: guesses would fill the memory.
        found = None if sealed is None else self._opened(digest, sealed)
        if found is not None:
            self._known[digest] = time.monotonic(), found
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return found

    async def _stored(self) -> dict[str, ApiKey]:
        reply = self._client.hgetall(self._settings.keys.api_keys())
        stored = dict(cast("Mapping[bytes, bytes]", await cast("Awaitable[object]", reply)))
        self._note_revoked(stored.pop(REVOKED.encode(), None))
        named = {text_of(digest): sealed for digest, sealed in stored.items()}
        opened = {digest: self._opened(digest, sealed) for digest, sealed in named.items()}
        return {digest: key for digest, key in opened.items() if key is not None}

    async def _write(self, digest: str, sealed: bytes | None, revoked: Revocations = NONE) -> None:
        """Store a key, or take it away, and what is revoked with it: both or neither, whatever others write meanwhile.

        So all revocations are sealed anew with the present secret whenever a key is made or revoked.
        """
        api_keys, known = self._settings.keys.api_keys(), self._revoked

        async def write(pipeline: Any) -> None:
            nonlocal known
            self._note_revoked(await pipeline.hget(api_keys, REVOKED))
            known = self._revoked.with_all_of(revoked)
            pipeline.multi()
            if known.expires_unix_s:
                pipeline.hset(api_keys, REVOKED, known.sealed(self._seal))
            if sealed is None:
                pipeline.hdel(api_keys, digest)
            else:
                pipeline.hset(api_keys, digest, sealed)

        await self._client.transaction(write, api_keys)
        self._revoked = self._revoked.with_all_of(known)

    def _note_revoked(self, sealed: bytes | None) -> None:
        if sealed != self._read_revoked:
            self._read_revoked = sealed
            self._revoked = self._revoked.with_all_of(Revocations.opened(self._seal, sealed))

    def _opened(self, digest: str, sealed: bytes) -> ApiKey | None:
        """Return a stored key; None for what the fleet did not write: access to Redis is not enough to make keys.

        Nor is it to have a key back that was revoked.
        """
        if digest[:ID_CHARS] in self._revoked:
            return None
        try:
            key = ApiKey.model_validate(self._seal.open_api_key(sealed, digest), strict=False)
        except (Refused, ValueError):
            return None
        # One that names nobody asks for itself: tools keep apart by subject, and nobody's data is not everybody's.
        return key if key.subject else key.model_copy(update={"subject": key.key_id})


def digest_of(key: str) -> str:
    """Return the digest of a key, which is all that is stored of its text."""
    return hashlib.sha256(key.encode()).hexdigest()
