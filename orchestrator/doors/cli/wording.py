"""How facts are written for people: numbers, lengths of time, and what strangers wrote. Pure.

Users, models and tools are strangers here: nothing of theirs may be a command to the terminal, or break a line in two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from toolfleet.terminal import harmless

SHOWN_CHARACTERS: Final = 200

SECOND_S: Final = 1
MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it must be."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def one_line(text: str, characters: int | None = None) -> str:
    """Return the text as one harmless line: of any white space one blank is left."""
    line = harmless(" ".join(text.split()))
    return line if characters is None else shortened(line, characters)


def shortened(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """Return the text, or the beginning of a long one."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def dollars(usd: float) -> str:
    """A sum of money, with as many digits as tools' prices need."""
    return f"${usd:.4f}"


def moment(unix_s: float) -> str:
    """Return a time for people, in UTC."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}"


def span(seconds: float) -> str:
    """Return a length of time in its two largest units at most; none where two clocks say that it is negative."""
    seconds = max(0.0, seconds)
    if seconds < SECOND_S:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < MINUTE_S:
        return f"{seconds:.1f} s"
    whole_s = round(seconds)
    if whole_s < HOUR_S:
        return f"{whole_s // MINUTE_S} min {whole_s % MINUTE_S} s"
    if whole_s < DAY_S:
        return f"{whole_s // HOUR_S} h {whole_s % HOUR_S // MINUTE_S} min"
    return f"{whole_s // DAY_S} d {whole_s % DAY_S // HOUR_S} h"
