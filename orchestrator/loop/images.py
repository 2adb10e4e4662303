"""Puts kept images back into a conversation before the model is asked: runs are stored without them."""

from __future__ import annotations

from collections.abc import Sequence

from toolfleet.artifacts import Artifacts, OfRun
from toolfleet.calls import MediaPart
from toolfleet.messages import Message, ToolMessage
from toolfleet.orchestrator.calls.kept_media import is_kept, with_data
from toolfleet.orchestrator.models.sight import is_image


class KeptImages:
    """The images of one fleet's results that are kept as artifacts."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def put_back(self, messages: Sequence[Message], run_id: str) -> Sequence[Message]:
        """Put kept images into messages, for a model to see; one that is gone stays a text. Raises StoreUnreachable."""
        answers = (message for message in messages if isinstance(message, ToolMessage))
        if not any(_is_kept_image(part) for answer in answers for part in answer.media):
            return messages
        return [
            message.model_copy(update={"media": tuple([await self._with_data(part, run_id) for part in message.media])})
            if isinstance(message, ToolMessage) and message.media
            else message
            for message in messages
        ]

    async def _with_data(self, part: MediaPart, run_id: str) -> MediaPart:
        return await with_data(self._artifacts, part, OfRun(run_id)) if _is_kept_image(part) else part


def _is_kept_image(part: MediaPart) -> bool:
    return is_kept(part) and is_image(part)
