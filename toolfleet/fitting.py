"""Makes results fit: what is too large to travel in a result is kept as an artifact, and the result names it.

Whoever settles a call fits its result first, a worker or the API. Knows the limits and `toolfleet.artifacts`, and
nothing of delivery.
"""

from __future__ import annotations

from collections.abc import Sequence

import redis
import redis.asyncio
import stamina

from toolfleet.artifacts import TEXT, Artifacts
from toolfleet.calls import Failed, MediaPart, Returned, Submitted, ToolCall
from toolfleet.logs import FactLog
from toolfleet.media import bytes_of
from toolfleet.paging import preview
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings

log = FactLog("toolfleet.fitting")

ATTEMPTS = 4
KEEP_WITHIN_S = 10.0
"""How long Redis may take to take it; then the model gets the beginning, and is told that the rest is lost."""

# Not `toolfleet.outages`: whoever waits here is a model, to which the beginning is of more use than the whole too late.
_TRIES = stamina.AsyncRetryingCaller(attempts=ATTEMPTS, timeout=KEEP_WITHIN_S, wait_max=2.0).on(COMMAND_FAILED)


class Fitting:
    """Fits the results of one event loop."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._artifacts = Artifacts(client, settings)
        self._max_result_bytes = settings.max_result_bytes
        self._max_media_bytes = settings.max_inline_media_bytes

    def is_needed(self, result: Returned | Failed | Submitted) -> bool:
        """Return whether any of it is too large."""
        if not isinstance(result, Returned):
            return False
        if result.media and any(self._is_too_large(part) for part in result.media):
            return True
        return is_larger(result, self._max_result_bytes)

    async def fit(self, result: Returned | Failed | Submitted, call: ToolCall) -> Returned | Failed | Submitted:
        """Keep what is too large. Returns the result with a preview and a reference in its place."""
        return await self.fit_returned(result, call) if isinstance(result, Returned) else result

    async def fit_returned(self, result: Returned, call: ToolCall) -> Returned:
        """Return what `fit` does."""
        media = [await self._fit_part(part, call) if self._is_too_large(part) else part for part in result.media]
        if media:
            content = _told(result.content, result.media, media)
            result = result.model_copy(update={"content": content, "media": tuple(media)})
        if not is_larger(result, self._max_result_bytes):
            return result
        artifact = await self._keep(result.content.encode(), call, TEXT)
        if artifact is None:
            return cut(result, self._max_result_bytes)
        shown = preview(result.content, artifact, self._max_result_bytes)
        return result.model_copy(update={"content": shown, "artifact": artifact})

    def _is_too_large(self, part: MediaPart) -> bool:
        return len(part.data) * 3 > self._max_media_bytes * 4

    async def _fit_part(self, part: MediaPart, call: ToolCall) -> MediaPart:
        data = bytes_of(part.data)
        artifact = await self._keep(data, call, part.media_type, part.name) if data else None
        return part.model_copy(update={"data": "", "artifact": artifact})

    async def _keep(self, data: bytes, call: ToolCall, media_type: str, name: str = "") -> str | None:
        async def keep() -> str | None:
            return await self._artifacts.keep(
                data, run_id=call.run_id, tenant=call.tenant, media_type=media_type, name=name
            )

        try:
            return await _TRIES(keep)
        except COMMAND_FAILED as error:
            log.warning("artifact_not_kept", call_id=call.call_id, run_id=call.run_id, error=str(error))
        return None


def _told(content: str, media: Sequence[MediaPart], fitted: Sequence[MediaPart]) -> str:
    """Return the text with what has become of its media: one part after the other has its own words in it."""
    for part, instead in zip(media, fitted, strict=True):
        content = content.replace(part.described, instead.described, 1)
    return content


def is_larger(result: Returned | Failed | Submitted, max_bytes: int) -> bool:
    """Return whether what the model would read is more than `max_bytes`."""
    if not isinstance(result, Returned) or len(result.content) <= max_bytes // 4:
        return False  # even four-byte characters fit
    return len(result.content.encode()) > max_bytes


def cut(result: Returned, max_bytes: int) -> Returned:
    """Return the result with its text cut to `max_bytes`, which it says."""
    encoded = result.content.encode()
    kept = encoded[:max_bytes].decode("utf-8", "ignore")
    note = f"\n[cut: the result has {len(encoded)} bytes, the first {len(kept.encode())} are shown]"
    return result.model_copy(update={"content": kept + note})
