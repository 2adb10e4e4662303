"""Images of a conversation between its store and its model: kept once as artifacts, put back before the model is asked.

Runs are stored without the bytes of large ones. What a run keeps only that run may read; a later one of the same tenant
that goes on with its messages gets them too.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from toolfleet.artifacts import Artifacts
from toolfleet.calls import MediaPart
from toolfleet.errors import ArtifactNotFound
from toolfleet.images import Image
from toolfleet.messages import Message, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import InvalidOption, RunNotFound
from toolfleet.orchestrator.models.sight import is_image
from toolfleet.orchestrator.store.run_store import RunStore


class KeptImages:
    """The images of one fleet's runs that are kept as artifacts."""

    def __init__(self, artifacts: Artifacts, store: RunStore, *, max_inline_bytes: int) -> None:
        self._artifacts = artifacts
        self._store = store
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
            return await self._for_this_run_too(image, image.artifact, run_id, tenant)
        if image.size_bytes <= self._max_inline_bytes or not image.data:
            return image
        data = base64.b64decode(image.data)
        artifact = await self._artifacts.keep(data, run_id=run_id, media_type=image.media_type)
        if artifact is None:
            raise InvalidOption(
                f"an image has {image.size_bytes} bytes, and this fleet keeps nothing so large: send a smaller one, or "
                "raise TOOLFLEET_MAX_ARTIFACT_BYTES"
            )
        return image.model_copy(update={"data": "", "artifact": artifact, "kept_for": run_id})

    async def _for_this_run_too(self, image: Image, artifact: str, run_id: str, tenant: str) -> Image:
        """Let a run read what an earlier one of its tenant had; what that had not stays unreadable."""
        try:
            if image.kept_for != run_id and await self._store.tenant(image.kept_for) == tenant:
                kept = await self._artifacts.fetch(artifact, run_id=image.kept_for)
                await self._artifacts.grant(artifact, run_id=run_id, media_type=kept.media_type)
                return image.model_copy(update={"kept_for": run_id})
        except (RunNotFound, ArtifactNotFound):
            pass  # the model will read that it is gone
        return image

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
        if not _is_kept(part) or part.artifact is None:
            return part
        data = await self._data(part.artifact, run_id)
        return part.model_copy(update={"data": data}) if data else part

    async def _seen(self, image: Image, run_id: str) -> Image:
        if image.artifact is None:
            return image
        data = await self._data(image.artifact, run_id)
        return image.model_copy(update={"data": data}) if data else image

    async def _data(self, artifact: str, run_id: str) -> str:
        """Return what is kept, as base64; "" for what is kept no longer, or not for this run."""
        try:
            kept = await self._artifacts.fetch(artifact, run_id=run_id)
        except ArtifactNotFound:
            return ""
        return base64.b64encode(kept.data).decode()


def _has_kept(message: Message) -> bool:
    match message:
        case ToolMessage():
            return any(map(_is_kept, message.media))
        case UserMessage():
            return any(image.artifact is not None for image in message.images)
        case _:
            return False


def _is_kept(part: MediaPart) -> bool:
    return part.artifact is not None and not part.data and is_image(part)
