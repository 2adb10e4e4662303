"""What is too large for a result: kept once by its SHA-256, and read in portions by the runs that were given it.

A run may read what a grant says it was given; grants are sealed, and content is checked against its hash. Loads Redis,
so that tools do not import it.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Final

import redis.asyncio
from pydantic import Field

from toolfleet import paging
from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.errors import ArtifactNotFound, BadArguments, Refused
from toolfleet.settings import Settings
from toolfleet.tool import tool
from toolfleet.wire import Seal

TEXT: Final = "text/plain; charset=utf-8"
MAX_PAGE_CHARS: Final = 20_000

_HASH_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something kept, whole."""

    artifact: str
    media_type: str
    data: bytes


@tool(read_only=True)
async def read_result(
    artifact: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_CHARS)] = 8000,
    search: Annotated[str, Field(max_length=1000)] = "",
) -> str:
    """Read on in a result that was too large to be shown whole, or find something in it.

    Args:
        artifact: the id that the preview names
        offset: the character to begin at
        limit: how many characters to read
        search: show where this text is found instead, in any case, from offset on
    """
    raise NotImplementedError(f"{artifact}, {offset}, {limit}, {search}: only Artifacts.answer can")


READ_RESULT: Final = read_result.spec
"""Offered to models beside the tools of the fleet; answered by `Artifacts.answer`, without a worker."""


class Artifacts:
    """The artifacts of one fleet. Every method raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = Seal(settings)
        self._max_bytes = settings.max_artifact_bytes
        self._keep_s = round(settings.keep_artifact_s)

    async def keep(self, data: bytes, *, run_id: str, media_type: str = TEXT) -> str | None:
        """Keep it for this run; its id. None if it is larger than `max_artifact_bytes`: then nothing is kept."""
        if len(data) > self._max_bytes:
            return None
        artifact = await _hash(data)
        if not await self._client.expire(self._keys.artifact(artifact), self._keep_s):
            await self._client.set(self._keys.artifact(artifact), data, ex=self._keep_s)
        await self.grant(artifact, run_id=run_id, media_type=media_type)
        return artifact

    async def grant(self, artifact: str, *, run_id: str, media_type: str = TEXT) -> None:
        """Let a run read it, for example the parent of the one that has it."""
        sealed = self._seal.close_grant(media_type.encode(), run_id, artifact)
        await self._client.set(self._keys.artifact_grant(run_id, artifact), sealed, ex=self._keep_s)

    async def fetch(self, artifact: str, *, run_id: str) -> Artifact:
        """Return the whole of it, which is then kept for as long again. Raises ArtifactNotFound.

        Whose run it is, the caller has checked.
        """
        gone = ArtifactNotFound(f"no artifact {artifact[:80]!r} was given to this run, or it is kept no longer")
        if len(artifact) != _HASH_CHARS:
            raise gone
        keys = [self._keys.artifact_grant(run_id, artifact), self._keys.artifact(artifact)]
        found: list[Any] = await self._client.mget(keys)
        sealed, data = found
        if sealed is None or data is None:
            raise gone
        try:
            media_type = self._seal.open_grant(sealed, run_id, artifact).decode()
        except Refused:
            raise gone from None
        if await _hash(data) != artifact:
            raise gone
        async with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.expire(key, self._keep_s)
            await pipeline.execute()
        return Artifact(artifact, media_type, data)

    async def answer(self, arguments: str, run_id: str) -> Returned | Failed:
        """The result of a model's call of `read_result`, whose arguments are JSON text. Raises StoreUnreachable."""
        try:
            asked = read_result.bind(arguments).values
        except BadArguments as error:
            return Failed(kind=FailureKind.BAD_ARGUMENTS, message=str(error))
        try:
            kept = await self.fetch(asked["artifact"], run_id=run_id)
        except ArtifactNotFound as error:
            return Failed(kind=FailureKind.ERROR, message=str(error))
        try:
            text = kept.data.decode()
        except UnicodeDecodeError:
            what = f"artifact {kept.artifact} is {kept.media_type}, {len(kept.data)} bytes, and no text to read"
            return Failed(kind=FailureKind.ERROR, message=what)
        if asked["search"]:
            return Returned(content=await _find(text, asked["search"], asked["offset"]))
        return Returned(content=paging.page(text, asked["offset"], asked["limit"]))


async def _find(text: str, searched: str, offset: int) -> str:
    shown: list[paging.Passage] = []
    for window in paging.places(text, searched, offset):
        shown += window
        if len(shown) > paging.MAX_MATCHES:
            break
        await asyncio.sleep(0)  # the loop serves others too
    more_at = shown[paging.MAX_MATCHES].start if len(shown) > paging.MAX_MATCHES else None
    return paging.found(text, searched, shown[: paging.MAX_MATCHES], more_at)


async def _hash(data: bytes) -> str:
    if len(data) < paging.WINDOW_CHARS:
        return hashlib.sha256(data).hexdigest()
    # hashlib lets go of the interpreter lock: beside the loop it holds up nobody.
    return (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
