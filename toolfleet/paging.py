"""Long texts in portions: a preview, a page, the places where something is found. Pure; each step's work is bounded.

Offsets count characters. What is written here is read by models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_PREVIEW_BYTES: Final = 8192
"""Enough to see what a result is; what is needed of it is then asked for."""

MAX_MATCHES: Final = 20
"""Places that one answer shows."""

CONTEXT_CHARS: Final = 100
"""What is shown of the text before and after each."""

WINDOW_CHARS: Final = 262_144
"""What is searched in one go, about a millisecond."""


def preview(text: str, artifact: str, max_bytes: int) -> str:
    """The beginning and the end of a text, how much is left out, and how to go on reading. Not above `max_bytes`."""
    lines = text.count("\n") + 1
    size = f"{len(text)} characters in {lines} line{'s' if lines > 1 else ''}"
    how = (
        f"[the whole result has {size}; read on with "
        f'read_result(artifact="{artifact}", offset=…), or find something in it with search="…"]'
    )
    room = max(64, min(MAX_PREVIEW_BYTES, max_bytes) - len(how.encode()) - 80)
    head = text.encode()[: room * 3 // 4].decode("utf-8", "ignore")
    tail = text[-(room // 4) :].encode()[-(room // 4) :].decode("utf-8", "ignore")
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}\n{how}"


def page(text: str, offset: int, limit: int) -> str:
    """Return the `limit` characters from `offset` on, with where they stand and where the next ones begin."""
    if offset >= len(text):
        return f"[there is nothing at offset {offset}: the result has {len(text)} characters]"
    end = min(offset + limit, len(text))
    where = f"[characters {offset} to {end} of {len(text)}; "
    following = f"the next begin at offset={end}]" if end < len(text) else "this is the end]"
    return f"{text[offset:end]}\n{where}{following}"


class Passage(NamedTuple):
    """Where something was found."""

    start: int
    end: int


def places(text: str, searched: str, offset: int) -> Iterator[list[Passage]]:
    """Where `searched` begins at `offset` or later, in any case: a list for each window, so that others get a turn."""
    pattern = re.compile(re.escape(searched), re.IGNORECASE)
    while offset < len(text):
        stop = offset + WINDOW_CHARS
        # As much further as a match may reach that begins in this window.
        found = pattern.finditer(text, offset, min(len(text), stop + len(searched) - 1))
        window = [Passage(*match.span()) for match in found if match.start() < stop]
        # A match that reaches beyond the window must not be begun again inside itself.
        offset = max(stop, window[-1].end if window else stop)
        yield window


def found(text: str, searched: str, shown: list[Passage], more_at: int | None) -> str:
    """Return the places that were found, each with what surrounds it; `more_at`: the offset to go on searching from."""
    if not shown:
        return f"[{searched!r} was not found]"
    parts = [f"at {place.start}: {_around(text, place)}" for place in shown]
    after = "no more" if more_at is None else f"more with offset={more_at}"
    return "\n".join([*parts, f"[{len(shown)} place{'s' if len(shown) > 1 else ''} shown, {after}]"])


def _around(text: str, place: Passage) -> str:
    start, end = max(0, place.start - CONTEXT_CHARS), min(len(text), place.end + CONTEXT_CHARS)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"
