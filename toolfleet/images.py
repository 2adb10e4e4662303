"""Images that users send along with what they say, and how they are written in JSON.

A data: URL is read into its bytes here. Which kinds and sizes a model takes is up to those who know models.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from toolfleet.calls import Record
from toolfleet.media import Media, essence_of

HTTPS: Final = "https://"
_DATA: Final = "data:"
_BASE64: Final = ";base64"


class Image(Record):
    """An image in a message of the user's: its bytes as base64, or a link that the model's provider follows itself.

    In JSON `url` may be a `data:` URL, which is read into `media_type` and `data`. Raises ValueError for a link that is
    neither, and for bytes that are not base64.
    """

    media_type: str = ""
    data: str = Field(default="", repr=False)
    url: str = Field(default="", repr=False, description="An https: or data: URL.")
    size_bytes: int = 0
    detail: Annotated[str, Field(max_length=32)] = ""
    """How closely the model is to look, in its provider's words."""
    at: Annotated[int, Field(ge=0)] = 0
    """Before which character of the text it stands."""
    artifact: str | None = None
    """What it is kept as, if it is large."""

    @classmethod
    def of(cls, media: Media, *, at: int = 0, detail: str = "") -> Image:
        """Return an image to send along, for example `Image.of(Media(png, "image/png"))`."""
        part = media.part
        return cls(media_type=essence_of(part.media_type), data=part.data, at=at, detail=detail)

    @model_validator(mode="before")
    @classmethod
    def _bytes_are_read(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        url, data = given.get("url"), given.get("data")
        if isinstance(url, str) and url[: len(_DATA)].lower() == _DATA:
            return {**given, "url": "", **_read_data_url(url)}
        if isinstance(data, str) and data:
            return {**given, "size_bytes": _size_of(data)}
        if isinstance(url, str) and url and not url.lower().startswith(HTTPS):
            raise ValueError("the url of an image begins with https:// or data:")
        return given

    @model_validator(mode="after")
    def _is_one_thing(self) -> Image:
        if sum(map(bool, (self.data, self.url, self.artifact))) != 1:
            raise ValueError("an image has one of url and data")
        return self

    @property
    def identity(self) -> str:
        """What two images have in common that are the same, however they are kept."""
        shown = self.url or self.artifact or hashlib.sha256(base64.b64decode(self.data)).hexdigest()
        return f"{self.at} {self.detail} {shown}"

    @property
    def described(self) -> str:
        """What is read where it cannot be seen. A link is not repeated: it may hold a secret."""
        if self.url:
            return "[image, a link]"
        return f"[{self.media_type or 'image'}, {self.size_bytes} bytes]"


def _read_data_url(url: str) -> dict[str, Any]:
    """Return type, data and size of a data: URL (RFC 2397). Raises ValueError."""
    head, comma, data = url[len(_DATA) :].partition(",")
    if not comma or not head.lower().endswith(_BASE64):
        raise ValueError("the data: URL of an image is data:image/png;base64,… or the like")
    return {"media_type": essence_of(head), "data": data, "size_bytes": _size_of(data)}


def _size_of(data: str) -> int:
    """Return how many bytes a base64 text stands for. Raises ValueError for any other text, and for an empty one."""
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("the bytes of an image are written in base64") from None
    if not size:
        raise ValueError("the image is empty")
    return size
