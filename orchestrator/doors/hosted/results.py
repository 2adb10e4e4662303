"""Results of the fleet as events of that protocol: text and images, within what it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from toolfleet.calls import MediaPart
from toolfleet.media import essence_of
from toolfleet.orchestrator.doors.hosted.session_log import TOOL_RESULT

MAX_TEXT_CHARS: Final = 100_000
"""Of one result. The fleet's own limit is lower by default; what it has cut says how to read on."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_IMAGE_CHARS: Final = 5 * 2**20
MAX_POST_BYTES: Final = 16 * 2**20
"""Of one request, which may be twice as large."""

NO_OUTPUT: Final = "(no output)"
"""An empty text is refused there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool use is answered with."""

    text: str
    is_error: bool = False
    media: Sequence[MediaPart] = ()


def result_event(use_id: str, answer: Answer) -> dict[str, Any]:
    """Return the event that answers a tool use."""
    return {
        "type": TOOL_RESULT,
        "custom_tool_use_id": use_id,
        "is_error": answer.is_error,
        "content": [{"type": "text", "text": _cut(answer.text) or NO_OUTPUT}, *_images(answer.media)],
    }


def refused_event(use_id: str, status: int) -> dict[str, Any]:
    """Return what is said in the place of a result that the API would not take."""
    return result_event(use_id, Answer(f"The tool has run, but its result was refused (HTTP {status}).", is_error=True))


def first_post(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return as many of the first as fit into one request, at least one."""
    post: list[dict[str, Any]] = []
    room = MAX_POST_BYTES
    for event in events:
        room -= len(orjson.dumps(event))
        if post and room < 0:
            break
        post.append(event)
    return post


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:MAX_TEXT_CHARS]}\n\n[cut: the first {MAX_TEXT_CHARS:,} of {len(text):,} characters]"


def _images(media: Sequence[MediaPart]) -> Iterator[dict[str, Any]]:
    """Yield the images; of anything else, and of what is too large, the text says what it is."""
    for part in media:
        kind = essence_of(part.media_type)
        if kind in IMAGES and part.data and len(part.data) <= MAX_IMAGE_CHARS:
            yield {"type": "image", "source": {"type": "base64", "media_type": kind, "data": part.data}}
