"""Which part of a representation a request wants, and whether it wants any: RFC 9110, sections 13 and 14. Pure.

One range is served; of several none, which is to say all: a server may do so, and nothing here gains by the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

MAX_DIGITS: Final = 18
"""A longer number is beyond any end, and Python would refuse to read one of thousands."""

_RANGE: Final = re.compile(r"(?P<first>[0-9]*)-(?P<last>[0-9]*)", re.ASCII)


class Unsatisfiable(Exception):
    """The range that is asked for begins behind the end."""


class Wanted(Enum):
    """What is to be answered besides a part."""

    WHOLE = auto()
    NOT_MODIFIED = auto()
    """The client has it already."""
    FAILED = auto()
    """The client wants another representation than the one that is there, or nothing."""


def wanted(headers: Mapping[str, str], *, etag: str, size: int, is_get: bool) -> range | Wanted:
    """Return which bytes a request wants. `headers` has lower-case names. Raises Unsatisfiable."""
    if "if-match" in headers and not _names(headers["if-match"], etag, weakly=False):
        return Wanted.FAILED
    if "if-none-match" in headers and _names(headers["if-none-match"], etag, weakly=True):
        return Wanted.NOT_MODIFIED
    # If-Range with a date never holds: there is none to compare it with.
    if not is_get or headers.get("if-range", etag).strip() != etag:
        return Wanted.WHOLE
    part = part_of(headers.get("range", ""), size)
    return Wanted.WHOLE if part is None else part


def part_of(header: str, size: int) -> range | None:
    """Return the bytes of one range; None for what is to be ignored: no range, several, none of bytes, nonsense.

    Raises Unsatisfiable.
    """
    unit, _, text = header.partition("=")
    specs = [spec for each in text.split(",") if (spec := each.strip(" \t"))]
    if unit.strip().lower() != "bytes" or len(specs) != 1 or (found := _RANGE.fullmatch(specs[0])) is None:
        return None
    first, last = _number(found["first"]), _number(found["last"])
    if first is None:
        return None if last is None else _satisfied(range(max(0, size - last), size))
    if last is not None and last < first:
        return None
    return _satisfied(range(first, size if last is None else min(last + 1, size)))


def _satisfied(part: range) -> range:
    if not part:
        raise Unsatisfiable
    return part


def _number(digits: str) -> int | None:
    digits = digits.lstrip("0") or digits[:1]
    if not digits:
        return None
    return int(digits) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS


def _names(header: str, etag: str, *, weakly: bool) -> bool:
    """Return whether a list of entity tags has this one, or is the star that stands for any."""
    tags = [tag.strip() for tag in header.split(",")]
    if weakly:
        tags = [tag.removeprefix("W/") for tag in tags]
    return header.strip() == "*" or etag in tags
