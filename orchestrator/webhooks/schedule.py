"""When a message is sent again: after the waits of the settings, a little more each, or as its receiver asks. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Final

JITTER: Final = 0.25
"""By how much of itself a wait is longer at most."""

RETRY_AFTER_MAX_S: Final = 24 * 3600.0
"""What asks for more is asked again after this."""


def wait_s(waits_s: Sequence[float], attempt: int, *, retry_after_s: float, chance: float) -> float | None:
    """Return the wait after the attempt of this number, the first being 1; None behind the last.

    `chance`, between 0 and 1, says how much longer than planned it is; a receiver may ask for longer yet.
    """
    if attempt > len(waits_s):
        return None
    return max(waits_s[attempt - 1], retry_after_s) * (1 + JITTER * chance)


def asked_wait_s(retry_after: str) -> float:
    """Return what a Retry-After header asks for, in seconds from now; 0 where it says nothing (RFC 9110, 10.2.3)."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), RETRY_AFTER_MAX_S)
    try:
        at_unix_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError):
        return 0.0
    return min(max(0.0, at_unix_s - time.time()), RETRY_AFTER_MAX_S)
