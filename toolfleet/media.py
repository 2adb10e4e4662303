"""What a tool returns that is not text: an image, a sound, a document, as bytes with a media type."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Final

from toolfleet.calls import MediaPart
from toolfleet.errors import InvalidMedia

_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})

_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED: Final = r'"(?:[^"\\\x00-\x1f\x7f-\U0010ffff]|\\[\x20-\x7e])*"'

_WHOLE_TYPE: Final = re.compile(rf"{_WORD}/{_WORD}(?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|{_QUOTED}))*", re.ASCII)
"""RFC 9110, 8.3.1, with parameters."""

_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*")


def essence_of(media_type: str) -> str:
    """What can be compared of a media type: without parameters and in small letters (RFC 9110, 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def sendable_type(media_type: str) -> str:
    """Return what can stand in a header: a tool may have written anything. What is no media type is just bytes."""
    return media_type if _WHOLE_TYPE.fullmatch(media_type) else "application/octet-stream"


def is_text(media_type: str) -> bool:
    """Return whether it says that it is a text, which may be read as it is: HTML, JSON, XML and SVG are."""
    essence = essence_of(media_type)
    return essence.startswith("text/") or essence in _TEXTS or essence.endswith(("+json", "+xml"))


def bytes_of(data: str) -> bytes:
    """Return what is in base64; nothing, where a tool wrote something else into a part of its own making."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return b""


@dataclass(frozen=True, slots=True)
class Media:
    """Bytes and what they are: `Media(png, "image/png")`. A tool returns one, or a list of texts and these.

    Models that can see get it as it is; others read what it was. Raises InvalidMedia.
    """

    data: bytes = field(repr=False)
    media_type: str
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes | bytearray | memoryview):
            raise InvalidMedia(f"Media holds bytes, not {type(self.data).__name__}")
        if not _TYPE.fullmatch(essence_of(str(self.media_type))):
            raise InvalidMedia(f'{self.media_type!r} is no media type: "image/png" is one')

    @property
    def part(self) -> MediaPart:
        """The same as it travels in a result."""
        return MediaPart(
            media_type=self.media_type,
            size_bytes=memoryview(self.data).nbytes,
            name=self.name,
            data=base64.b64encode(self.data).decode(),
        )
