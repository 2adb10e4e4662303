"""How the page writes what it shows: lengths of time, sizes, JSON as it is stored. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from toolfleet.orchestrator.doors.cli.wording import dollars, moment, plural, shortened, span

__all__ = ["compact_span", "dollars", "indented", "moment", "plural", "segment", "shortened", "size", "span"]

KB: Final = 1024

MAX_INDENTED: Final = 64 * 1024
"""A longer text is shown in part, as it is; all of it is a link away."""

MAX_DEPTH: Final = 40
"""Deeper levels are indented no further: they would stand off the screen."""

_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+|"', re.DOTALL)

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400


def size(count: int) -> str:
    """Return a number of bytes for people."""
    if count < KB:
        return f"{count} B"
    if count < KB * KB:
        return f"{count / KB:.1f} KB"
    return f"{count / KB / KB:.1f} MB"


def compact_span(seconds: float) -> str:
    """Return a length of time as an axis names it: whole hours, minutes and seconds, those that are there."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0"
    if seconds < MINUTE_S:
        return f"{seconds:g} s"
    parts = ((seconds // DAY_S, "d"), (seconds % DAY_S // HOUR_S, "h"), (seconds % HOUR_S // MINUTE_S, "min"))
    rest = seconds % MINUTE_S
    return " ".join([f"{value:.0f} {unit}" for value, unit in parts if value] + ([f"{rest:.0f} s"] if rest else []))


def segment(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")


def indented(text: str) -> str:
    """Return JSON text on many lines, with every name and number as it was written; any other text as it is.

    It is never parsed: a number of twenty digits, two members of one name and their order stay what they are.
    """
    if len(text) > MAX_INDENTED or text.lstrip()[:1] not in {"{", "["}:
        return text
    lines: list[str] = []
    depth = 0
    parts = [part for part in _PARTS.findall(text) if not part.isspace()]
    for at, part in enumerate(parts):
        following = parts[at + 1] if at + 1 < len(parts) else ""
        if part in {"{", "["}:
            depth += 1
            lines.append(part if following in {"}", "]"} else part + _break(depth))
        elif part in {"}", "]"}:
            depth -= 1
            lines.append(part if at and parts[at - 1] in {"{", "["} else _break(depth) + part)
        else:
            lines.append({",": f",{_break(depth)}", ":": ": "}.get(part, part))
    return "".join(lines) if depth == 0 else text


def _break(depth: int) -> str:
    return "\n" + "  " * max(0, min(depth, MAX_DEPTH))
