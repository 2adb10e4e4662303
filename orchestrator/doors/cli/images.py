"""Images on the command line: files that go along with a question."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path

import typer

from toolfleet.images import Image
from toolfleet.media import Media
from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.models.sight import IMAGES


def with_images(question: str, files: Sequence[Path]) -> str | Sequence[Message]:
    """Return a question with the images in these files before it. Raises BadParameter for what is none."""
    if not files:
        return question
    return (UserMessage(content=question, images=tuple(map(_image, files))),)


def _image(file: Path) -> Image:
    media_type = mimetypes.guess_type(file.name)[0] or ""
    if media_type not in IMAGES:
        raise typer.BadParameter(f"{file} is named like none of {', '.join(sorted(IMAGES))}", param_hint="--image")
    try:
        return Image.of(Media(file.read_bytes(), media_type))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="--image") from None
    except ValueError:
        raise typer.BadParameter(f"{file} is empty", param_hint="--image") from None
