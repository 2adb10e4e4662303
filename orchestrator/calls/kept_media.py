"""Media of a result that are kept as artifacts, put back where somebody is to be shown them."""

from __future__ import annotations

import base64
from typing import Final, TypeVar, cast

from toolfleet.artifacts import Artifacts, Asker
from toolfleet.calls import Failed, MediaPart, Returned, Submitted
from toolfleet.errors import ArtifactNotFound
from toolfleet.messages import ToolMessage

MAX_SHOWN_BYTES: Final = 8 * 1024 * 1024
"""How much of a result's media is put back: more than any provider takes in one request, less than holds up a loop."""

Result = TypeVar("Result", bound=ToolMessage | Returned | Failed | Submitted)


async def with_media(artifacts: Artifacts, result: Result, asker: Asker, max_bytes: int = MAX_SHOWN_BYTES) -> Result:
    """The same with its media at hand, in their order, as far as they fit into `max_bytes` and are kept still.

    Raises StoreUnreachable.
    """
    if not isinstance(result, Returned | ToolMessage) or not any(map(is_kept, result.media)):
        return result
    left_bytes = max_bytes - sum(part.size_bytes for part in result.media if part.data)
    media: list[MediaPart] = []
    for part in result.media:
        if is_kept(part) and part.size_bytes <= left_bytes:
            media.append(await with_data(artifacts, part, asker))
            left_bytes -= part.size_bytes
        else:
            media.append(part)
    return cast("Result", result.model_copy(update={"media": tuple(media)}))


async def with_data(artifacts: Artifacts, part: MediaPart, asker: Asker) -> MediaPart:
    """The same with its data, or as it is if that is kept no longer. Raises StoreUnreachable."""
    try:
        data = await (await artifacts.find(part.artifact or "", asker)).read()
    except ArtifactNotFound:
        return part
    return part.model_copy(update={"data": base64.b64encode(data).decode()})


def is_kept(part: MediaPart) -> bool:
    """Return whether its data is elsewhere, and can be had there."""
    return part.artifact is not None and not part.data
