"""Which media of a tool's result a model that sees is shown. The formats are the providers'; all of them take these."""

from __future__ import annotations

from typing import Final

from toolfleet.calls import MediaPart
from toolfleet.media import essence_of
from toolfleet.messages import ToolMessage

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

MAX_IMAGE_BYTES: Final = 3_750_000
"""Anthropic takes 5 MB of base64 for each image, the others more."""


def is_image(part: MediaPart) -> bool:
    """Return whether models that see can take it."""
    return essence_of(part.media_type) in IMAGES and part.size_bytes <= MAX_IMAGE_BYTES


def images_of(message: ToolMessage) -> list[MediaPart]:
    """Return those of its media that are at hand and can be shown; of the others the text says what they are."""
    return [part for part in message.media if part.data and is_image(part)]
