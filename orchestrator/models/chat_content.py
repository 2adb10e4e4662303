"""The content of messages as OpenAI's clients write it, text or a list of parts, read into text, refusal and images.

For every door that such messages come in by. What no model here is shown is refused by name. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from toolfleet.images import Image

TEXTS: Final = frozenset({"text", "input_text", "output_text"})
IMAGES: Final = frozenset({"image_url", "input_image"})
REFUSAL: Final = "refusal"

_OWN_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text"}),
    "input_text": frozenset({"text"}),
    "output_text": frozenset({"text"}),
    "image_url": frozenset({"image_url"}),
    "input_image": frozenset({"image_url", "detail"}),
    REFUSAL: frozenset({REFUSAL}),
}
"""What each type of part may have; of anything else in it no model would hear."""


class NotTaken(ValueError):
    """A part of a request that nothing can be made of; `param` is where it stands."""

    def __init__(self, said: str, param: str) -> None:
        super().__init__(said)
        self.param = param


@dataclass(slots=True)
class Content:
    """What one message says."""

    text: str = ""
    refusal: str = ""
    images: list[Image] = field(default_factory=list)


def content_of(content: str | Sequence[Mapping[str, Any]] | None, role: str, where: str) -> Content:
    """Return what a message of this role says; `where` it stands is told with what is wrong. Raises NotTaken.

    Users may show images, assistants may have refused, and everybody may say text.
    """
    if content is None or isinstance(content, str):
        return Content(text=content or "")
    said = Content()
    for place, part in enumerate(content):
        _add(said, part, role, f"{where}[{place}]")
    return said


def _add(said: Content, part: Mapping[str, Any], role: str, where: str) -> None:
    kind = part.get("type", "text")
    if kind in TEXTS:
        said.text += _text(part, "text", where)
    elif kind == REFUSAL and role == "assistant":
        said.refusal += _text(part, REFUSAL, where)
    elif kind in IMAGES and role == "user":
        said.images.append(_image(part, len(said.text), where))
    else:
        raise NotTaken(f"{where}: a message of the role {role} has no {kind!s:.40} here, only {_takes(role)}", where)
    for name, value in part.items():
        if name not in {"type", *_OWN_FIELDS[kind]} and value not in (None, [], {}):
            raise NotTaken(f"{where}.{name}: no model here is told of it; leave it out", f"{where}.{name}")


def _takes(role: str) -> str:
    more = {"user": " and images (of https: or data: URLs)", "assistant": " and refusals"}
    return f"text{more.get(role, '')}"


def _text(part: Mapping[str, Any], name: str, where: str) -> str:
    text = part.get(name)
    if not isinstance(text, str):
        raise NotTaken(f"{where}.{name}: is no text", f"{where}.{name}")
    return text


def _image(part: Mapping[str, Any], at: int, where: str) -> Image:
    """Return an image as either API writes it: `image_url` holds the URL, or an object that does."""
    shown = part.get("image_url")
    link = {"url": shown, "detail": part.get("detail")} if isinstance(shown, str) else shown
    param = f"{where}.image_url"
    if not isinstance(link, Mapping) or not isinstance(link.get("url"), str) or not link["url"]:
        raise NotTaken(f"{param}: has no url, which is an https: or a data: URL", param)
    if strange := sorted(name for name, value in link.items() if name not in {"url", "detail"} and value is not None):
        raise NotTaken(f"{param}.{strange[0]}: no model here is told of it; leave it out", f"{param}.{strange[0]}")
    try:
        return Image(url=link["url"], detail=link.get("detail") or "", at=at)
    except (ValidationError, ValueError) as error:
        raise NotTaken(f"{param}: {_said(error)}", param) from None


def _said(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
    return str(error)
