"""What stands in Redis and cannot be read: skipped, counted, and said, however much of it there is, in few lines.

Others write to the same Redis: newer versions of this package, older ones, people, and whoever should not. No reader
fails for that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from toolfleet.errors import Refused
from toolfleet.logs import FactLog

log = FactLog("toolfleet")

T = TypeVar("T")

SAY_EVERY_S: Final = 60.0
"""How often, at most, one kind of record is said to be unreadable."""

_counts = Counter[str]()
_said_s: dict[str, float] = {}


def skipped() -> Mapping[str, int]:
    """Return how many records of each kind this process could not read."""
    return MappingProxyType(_counts)


def skip(kind: str, why: object, **fields: Any) -> None:
    """Count a record that is passed over, and log it if none of its kind was logged for a while.

    `kind` is a constant. What the record holds is not logged: it may be huge, or a secret.
    """
    _counts[kind] += 1
    now_s = time.monotonic()
    if now_s - _said_s.get(kind, float("-inf")) >= SAY_EVERY_S:
        _said_s[kind] = now_s
        reason = why if isinstance(why, str) else type(why).__name__
        log.warning("record_skipped", kind=kind, skipped=_counts[kind], reason=reason[:200], **fields)


def open_or_skip(kind: str, open_: Callable[[bytes, str], T], sealed: bytes | None, call_id: str) -> T | None:
    """Return what is sealed there about a call; None where there is nothing, or nothing that the fleet has sealed."""
    if not sealed:
        return None
    try:
        return open_(sealed, call_id)
    except Refused as refusal:
        skip(kind, str(refusal), call_id=call_id)
        return None


def text_of(name: bytes) -> str:
    """Return bytes as text, whatever they are: what is no UTF-8 becomes a name that nothing has."""
    return name.decode(errors="replace")
