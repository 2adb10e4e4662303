"""What a client says, read from the parts of its message: text, data, images. What no model takes is refused. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import orjson
from a2a.types import Message, Part, Role
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError

from toolfleet.images import Image
from toolfleet.media import essence_of
from toolfleet.messages import UserMessage

BETWEEN: Final = "\n\n"

READ_AS_TEXT: Final = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})

MOST_ID_CHARS: Final = 256
"""Of the ids that clients make up: they stand in histories, and in names of keys as a digest."""


def must_be_well_formed(message: Message) -> None:
    """Raise InvalidParamsError for a message that nobody can have meant."""
    if message.role != Role.ROLE_USER:
        raise InvalidParamsError("a message to this agent has the role ROLE_USER")
    for name in ("message_id", "context_id", "task_id"):
        if len(getattr(message, name)) > MOST_ID_CHARS:
            raise InvalidParamsError(f"{name} has more than {MOST_ID_CHARS} characters")


def user_message(message: Message, written: Mapping[str, Any]) -> UserMessage:
    """Return what a message says to a model; `written` is it as it came, whose numbers are exact.

    Raises ContentTypeNotSupportedError, InvalidParamsError.
    """
    content, images = "", []
    for part, as_written in zip(message.parts, written["parts"], strict=True):
        shown = _image(part, at=len(content))
        if shown is not None:
            images.append(shown)
        else:
            text = _text(part, as_written)
            content = f"{content}{BETWEEN}{text}" if content else text
    return UserMessage(content=content, images=tuple(images))


def _text(part: Part, written: Mapping[str, Any]) -> str:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return orjson.dumps(written["data"]).decode()
        case "raw" if _is_text(part.media_type):
            try:
                text = part.raw.decode()
            except UnicodeDecodeError:
                raise ContentTypeNotSupportedError(f"a file of {part.media_type} is not UTF-8") from None
            return f"{part.filename}:\n{text}" if part.filename else text
        case "raw" | "url":
            kind = part.media_type or "no media type"
            raise ContentTypeNotSupportedError(f"a file of {kind} is not taken here: send text, data or an image")
        case _:
            raise InvalidParamsError("a part has one of text, data, raw and url")


def _is_text(media_type: str) -> bool:
    essence = essence_of(media_type)
    return essence.startswith("text/") or essence in READ_AS_TEXT or essence.endswith(("+json", "+xml"))


def _image(part: Part, *, at: int) -> Image | None:
    kind = part.WhichOneof("content")
    if kind not in {"raw", "url"} or not essence_of(part.media_type).startswith("image/"):
        return None
    try:
        if kind == "url":
            return Image(url=part.url, at=at)
        return Image(media_type=essence_of(part.media_type), data=base64.b64encode(part.raw).decode(), at=at)
    except ValueError as error:
        raise InvalidParamsError(f"an image cannot be read: {error}"[:300]) from None


def decisions_in(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the data parts of a message that name what they decide about: a call, or a question."""
    found = [part["data"] for part in written["parts"] if isinstance(part.get("data"), dict)]
    return [data for data in found if "call_id" in data or "question_id" in data]
