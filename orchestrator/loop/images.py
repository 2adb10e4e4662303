"""Images of a conversation between its store and its model: kept once as artifacts, put back before the model is asked.

Runs are stored without the bytes of large ones. A later run of the same tenant that goes on with their messages gets
them too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from contextlib import suppress

from toolfleet.artifacts import Artifacts, OfRun, OfTenant
from toolfleet.calls import Failed, MediaPart, Returned
from toolfleet.errors import ArtifactNotFound
from toolfleet.images import Image
from toolfleet.media import essence_of
from toolfleet.messages import Message, ToolMessage, UserMessage
from toolfleet.orchestrator.calls.kept_media import is_kept, with_data
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.models.sight import is_image


class KeptImages:
    """The images of one fleet's runs that are kept as artifacts."""

    def __init__(self, artifacts: Artifacts, *, max_inline_bytes: int) -> None:
        self._artifacts = artifacts
        self._max_inline_bytes = max_inline_bytes

    # --- to the store -------------------------------------------------------------------------------------------

    async def kept(self, messages: Sequence[Message], run_id: str, *, tenant: str) -> tuple[Message, ...]:
        """Return what a user says as a run of this tenant stores it. Raises InvalidOption, StoreUnreachable."""
        return tuple(
            [
                message.model_copy(
                    update={"images": tuple([await self._kept(image, run_id, tenant) for image in message.images])}
                )
                if isinstance(message, UserMessage) and message.images
                else message
                for message in messages
            ]
        )

    async def _kept(self, image: Image, run_id: str, tenant: str) -> Image:
        if image.artifact is not None:
            return await self._shared(image, image.artifact, run_id, tenant)
        if image.size_bytes <= self._max_inline_bytes or not image.data:
            return image
        data = base64.b64decode(image.data)
        artifact = await self._artifacts.keep(data, run_id=run_id, tenant=tenant, media_type=image.media_type)
        if artifact is None:
            raise InvalidOption(
                f"an image has {image.size_bytes} bytes, and this fleet keeps nothing so large: send a smaller one, or "
                "raise TOOLFLEET_MAX_ARTIFACT_BYTES"
            )
        return image.model_copy(update={"data": "", "artifact": artifact})

    async def _shared(self, image: Image, artifact: str, run_id: str, tenant: str) -> Image:
        """Let a run see what an earlier one of its tenant had; of anything else its model reads that it is gone.

        What it is was said when it was kept: whoever sends it now may say anything.
        """
        try:
            found = await self._artifacts.find(artifact, OfTenant(tenant))
        except ArtifactNotFound:
            return image
        await self._artifacts.share(found, run_id, tenant=tenant)
        return image.model_copy(update={"media_type": essence_of(found.media_type), "size_bytes": found.size_bytes})

    async def share_results(self, results: Iterable[Returned | Failed], run_id: str, *, tenant: str) -> None:
        """Let a run read what results keep as artifacts that an earlier one of its tenant had."""
        returned = [result for result in results if isinstance(result, Returned)]
        named = {result.artifact for result in returned} | {part.artifact for each in returned for part in each.media}
        for artifact in sorted(name for name in named if name is not None):
            with suppress(ArtifactNotFound):
                found = await self._artifacts.find(artifact, OfTenant(tenant))
                await self._artifacts.share(found, run_id, tenant=tenant)

    # --- to the model -------------------------------------------------------------------------------------------

    async def put_back(self, messages: Sequence[Message], run_id: str) -> Sequence[Message]:
        """Put kept images into messages, for a model to see; one that is gone stays a text. Raises StoreUnreachable."""
        if not any(map(_has_kept, messages)):
            return messages
        return [await self._put_back(message, run_id) for message in messages]

    async def _put_back(self, message: Message, run_id: str) -> Message:
        match message:
            case ToolMessage() if _has_kept(message):
                media = tuple([await self._with_data(part, run_id) for part in message.media])
                return message.model_copy(update={"media": media})
            case UserMessage() if _has_kept(message):
                images = tuple([await self._seen(image, run_id) for image in message.images])
                return message.model_copy(update={"images": images})
            case _:
                return message

    async def _with_data(self, part: MediaPart, run_id: str) -> MediaPart:
        return await with_data(self._artifacts, part, OfRun(run_id)) if _is_kept_image(part) else part

    async def _seen(self, image: Image, run_id: str) -> Image:
        if image.artifact is None:
            return image
        try:
            data = await (await self._artifacts.find(image.artifact, OfRun(run_id))).read()
        except ArtifactNotFound:
            return image
        return image.model_copy(update={"data": base64.b64encode(data).decode()})


def _has_kept(message: Message) -> bool:
    match message:
        case ToolMessage():
            return any(map(_is_kept_image, message.media))
        case UserMessage():
            return any(image.artifact is not None for image in message.images)
        case _:
            return False


def _is_kept_image(part: MediaPart) -> bool:
    return is_kept(part) and is_image(part)
