"""Which images a model that sees is shown: of a tool's result, and of what a user says.

The formats are the providers'; all of them take these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolfleet.calls import MediaPart
from toolfleet.images import Image
from toolfleet.media import essence_of
from toolfleet.messages import Message, ToolMessage, UserMessage

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

MAX_IMAGE_BYTES: Final = 3_750_000
"""Anthropic takes 5 MB of base64 for each image, the others more."""


def is_image(part: MediaPart) -> bool:
    """Return whether models that see can take it."""
    return essence_of(part.media_type) in IMAGES and part.size_bytes <= MAX_IMAGE_BYTES


def images_of(message: ToolMessage) -> list[MediaPart]:
    """Return those of its media that are at hand and can be shown; of the others the text says what they are."""
    return [part for part in message.media if part.data and is_image(part)]


def images_said(messages: Sequence[Message]) -> list[Image]:
    """Return the images of a conversation that its user has sent along."""
    return [image for message in messages if isinstance(message, UserMessage) for image in message.images]


def problem_with_image(image: Image) -> str | None:
    """Return why no model is shown an image; None if those that see are. Of a link nobody knows before."""
    if image.url:
        return None
    if image.media_type not in IMAGES:
        return f"an image is {image.media_type or 'of no known type'}; models take {', '.join(sorted(IMAGES))}"
    if image.size_bytes > MAX_IMAGE_BYTES:
        return f"an image has {image.size_bytes} bytes; models take {MAX_IMAGE_BYTES}: send a smaller one"
    return None


def gone(image: Image) -> str:
    """Return what a model reads of an image that was kept and is not any more."""
    return f"{image.described[:-1]}, kept no longer]"
