"""What is too large for a result: kept once by its SHA-256, and read by the runs, and the tenant, that were given it.

Who may read what is said by grants, one for each run and artifact. A grant is sealed, and names the hash of each piece
of the content, so that neither can be made up in Redis, and a part is checked without the rest. Loads Redis, so that
tools do not import it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.calls import Record
from toolfleet.errors import ArtifactNotFound, CallerError, Refused
from toolfleet.scripts import lua, wire_script
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

TEXT: Final = "text/plain; charset=utf-8"

PIECE_BYTES: Final = 256 * 1024
"""What is read and checked in one go, about a millisecond."""

MAX_RUNS: Final = 100
"""How many runs of a tenant that were given an artifact are asked for it: names in Redis cost nobody anything."""

KEEP: Final = wire_script("keep_artifact")
FORGET: Final = lua(__package__, "forget_artifact")

_HASH_CHARS: Final = 64
_KEPT: Final = 1
_NOT_THERE: Final = 0


@dataclass(frozen=True, slots=True)
class OfRun:
    """A run asks: it reads what it was given itself."""

    run_id: str


@dataclass(frozen=True, slots=True)
class OfTenant:
    """A caller asks, whose tenant is known: they read what any call of that tenant was given, in a run or without."""

    tenant: str = ""


Asker = OfRun | OfTenant
"""Who wants to read. Whose run, or who the tenant is, was checked before."""


class ArtifactGrant(Record):
    """That a run may read an artifact, and what that is."""

    v: Literal[1] = 1
    tenant: str
    media_type: str
    name: str
    size_bytes: int
    pieces: tuple[str, ...]
    """The SHA-256 of each piece of its content, in their order."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something that is kept: what it is, and its bytes when they are asked for.

    Reading raises StoreUnreachable, and ArtifactNotFound once it is kept no longer, or something else stands there.
    """

    artifact: str
    media_type: str
    name: str
    size_bytes: int
    _pieces: tuple[str, ...] = field(repr=False)
    _key: str = field(repr=False)
    _client: redis.asyncio.Redis = field(repr=False)

    async def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes from `offset` on, or all that follow; fewer where it ends before."""
        return b"".join([piece async for piece in self.stream(offset, size)])

    async def stream(self, offset: int = 0, size: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the same in pieces, so that no more than one of them is in memory. Raises CallerError below zero."""
        if offset < 0 or (size is not None and size < 0):
            raise CallerError(f"an artifact is read from byte 0 on, not {size} bytes from {offset} on")
        end = self.size_bytes if size is None else min(self.size_bytes, offset + size)
        for start in range(offset - offset % PIECE_BYTES, end, PIECE_BYTES):
            piece = await self._piece(start)
            yield piece[max(0, offset - start) : end - start]

    async def _piece(self, start: int) -> bytes:
        """The piece that begins at this byte, if it is what was kept."""
        piece = cast("bytes", await self._client.getrange(self._key, start, start + PIECE_BYTES - 1))
        if _sha256(piece) != self._pieces[start // PIECE_BYTES]:
            raise _not_found(self.artifact)
        return piece


class Artifacts:
    """The artifacts of one fleet. Every method raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = Seal(settings)
        self._max_bytes = settings.max_artifact_bytes
        self._keep_s = round(settings.keep_artifact_s)
        self._keep = client.register_script(KEEP)
        self._forget = client.register_script(FORGET)

    async def keep(
        self, data: bytes, *, run_id: str, tenant: str = "", media_type: str = TEXT, name: str = ""
    ) -> str | None:
        """Keep it for this run of this tenant; its id.

        None, and nothing is kept, for what is larger than `max_artifact_bytes`, and for a run that was deleted.
        """
        if len(data) > self._max_bytes:
            return None
        artifact, pieces = await _hashed(data)
        grant = ArtifactGrant(tenant=tenant, media_type=media_type, name=name, size_bytes=len(data), pieces=pieces)
        reply = await self._hold(artifact, run_id, grant)
        if reply == _NOT_THERE:
            reply = await self._hold(artifact, run_id, grant, data)
        return artifact if reply == _KEPT else None

    async def find(self, artifact: str, asker: Asker) -> Artifact:
        """Return what this asker was given, which is then kept for as long again. Raises ArtifactNotFound."""
        if len(artifact) != _HASH_CHARS or not artifact.isalnum():
            raise _not_found(artifact)
        run_ids = [asker.run_id] if isinstance(asker, OfRun) else await self._runs_with(artifact, asker.tenant)
        run_id, grant = await self._grant(artifact, run_ids, asker)
        if await self._hold(artifact, run_id, grant) != _KEPT:
            raise _not_found(artifact)
        key = self._keys.artifact(grant.tenant, artifact)
        return Artifact(
            artifact,
            grant.media_type,
            grant.name,
            grant.size_bytes,
            _pieces=grant.pieces,
            _key=key,
            _client=self._client,
        )

    async def share(self, found: Artifact, run_id: str, *, tenant: str) -> None:
        """Let another run of this tenant read what was found for it, for as long as if it had been given it itself."""
        grant = ArtifactGrant(
            tenant=tenant,
            media_type=found.media_type,
            name=found.name,
            size_bytes=found.size_bytes,
            pieces=found._pieces,
        )
        await self._hold(found.artifact, run_id, grant)

    async def forget(self, run_id: str) -> None:
        """Take from a run that is deleted all that it was given; what no other run of its tenant has is gone."""
        found = await cast("Awaitable[set[bytes]]", self._client.smembers(self._keys.artifacts_of(run_id)))
        for artifact in map(text_of, found):
            key = self._keys.artifact_grant(run_id, artifact)
            grant = self._opened(cast("bytes | None", await self._client.get(key)), run_id, artifact)
            tenant = "" if grant is None else grant.tenant
            keys = [self._keys.artifact(tenant, artifact), key, self._keys.artifact_runs(tenant, artifact)]
            await cast("Awaitable[int]", self._forget(keys=keys, args=[run_id]))
        await self._client.unlink(self._keys.artifacts_of(run_id))

    async def _hold(self, artifact: str, run_id: str, grant: ArtifactGrant, *data: bytes) -> int:
        keys, sealed = self._keys, self._seal.close_grant(grant.model_dump_json().encode(), run_id, artifact)
        reply = self._keep(
            keys=[
                keys.artifact(grant.tenant, artifact),
                keys.artifact_grant(run_id, artifact),
                keys.artifact_runs(grant.tenant, artifact),
                keys.artifacts_of(run_id),
            ],
            args=[artifact, run_id, keys.deleted(run_id), sealed, self._keep_s, *data],
        )
        return await cast("Awaitable[int]", reply)

    async def _runs_with(self, artifact: str, tenant: str) -> list[str]:
        """Runs of a tenant that may have it, for all that its index says: their grants say whether they do."""
        found = await self._client.zrevrange(self._keys.artifact_runs(tenant, artifact), 0, MAX_RUNS - 1)
        return [text_of(each) for each in cast("list[bytes]", found)]

    async def _grant(self, artifact: str, run_ids: list[str], asker: Asker) -> tuple[str, ArtifactGrant]:
        """The first grant of these runs that the asker may use. Raises ArtifactNotFound."""
        keys = [self._keys.artifact_grant(run_id, artifact) for run_id in run_ids]
        found: list[Any] = await self._client.mget(keys) if keys else []
        for run_id, sealed in zip(run_ids, found, strict=True):
            grant = self._opened(sealed, run_id, artifact)
            if grant is not None and (isinstance(asker, OfRun) or grant.tenant == asker.tenant):
                return run_id, grant
        raise _not_found(artifact)

    def _opened(self, sealed: bytes | None, run_id: str, artifact: str) -> ArtifactGrant | None:
        """The grant in sealed bytes; None where there is none, or none of ours for this run."""
        if sealed is None:
            return None
        try:
            text = self._seal.open_grant(sealed, run_id, artifact)
            return ArtifactGrant.model_validate_json(text, extra="ignore")
        except (Refused, ValidationError) as error:
            skip("artifact_grant", error if isinstance(error, ValidationError) else str(error), run_id=run_id)
            return None


def _not_found(artifact: str) -> ArtifactNotFound:
    return ArtifactNotFound(f"no artifact {artifact[:80]!r} was given to whoever asks, or it is kept no longer")


async def _hashed(data: bytes) -> tuple[str, tuple[str, ...]]:
    """The hash of all of it, and of each piece."""
    if len(data) < PIECE_BYTES:
        whole = _sha256(data)
        return whole, (whole,)
    # hashlib lets go of the interpreter lock: beside the loop it holds up nobody.
    return await asyncio.to_thread(_hashes, data)


def _hashes(data: bytes) -> tuple[str, tuple[str, ...]]:
    view = memoryview(data)
    pieces = tuple(_sha256(view[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES))
    return _sha256(view), pieces


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
