"""What a tool returns that is not text: an image, a sound, a document, as bytes with a media type."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final

from toolfleet.calls import MediaPart
from toolfleet.errors import InvalidMedia

_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})

_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*")


def essence_of(media_type: str) -> str:
    """What can be compared of a media type: without parameters and in small letters (RFC 9110, 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def is_text(media_type: str) -> bool:
    """Return whether it says that it is a text, which may be read as it is: HTML, JSON, XML and SVG are."""
    essence = essence_of(media_type)
    return essence.startswith("text/") or essence in _TEXTS or essence.endswith(("+json", "+xml"))


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
