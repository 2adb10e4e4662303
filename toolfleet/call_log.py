"""What tools have logged, by call and attempt: the records, and how they are written and read back.

Pure. A *part* is some lines of one attempt that a worker has written together, sealed for their call. Before the seal
stands what Redis goes by when it drops the oldest: when the part was made, and how many lines it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import orjson
from pydantic import Field, ValidationError

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.skipped import skip
from toolfleet.wire import Seal

RANK_OF_DELIVERY: Final = 10_000_000_000
"""More than any clock's seconds, so that attempts are in the order of their deliveries first."""


class LoggedLine(Record):
    """One line."""

    at_unix_s: float
    level: str
    """As Python's logging calls it, in small letters: `info`, `warning`, …"""
    logger: str
    text: str = Field(repr=False)


class AttemptLog(Record):
    """What one attempt at a call has logged, as far as it is kept."""

    attempt: int
    """Which delivery it was."""
    worker: str
    began_unix_s: float
    lines: tuple[LoggedLine, ...]


class CallLog(Record):
    """What a call's tool has logged, attempt by attempt."""

    call_id: str
    lost: int = 0
    """How many earlier lines are kept no more."""
    attempts: tuple[AttemptLog, ...] = ()


def rank_of(attempt: int, began_unix_s: float) -> float:
    """Return where an attempt stands among those of its call: an earlier one never before a later one."""
    return attempt * RANK_OF_DELIVERY + began_unix_s


def encoded_line(at_unix_s: float, level: str, logger: str, text: str) -> bytes:
    """Return a line as it stands in a part."""
    return orjson.dumps({"at_unix_s": round(at_unix_s, 3), "level": level, "logger": logger, "text": text})


def close_part(seal: Seal, key: str, about: dict[str, Any], lines: Sequence[bytes], made_us: int) -> bytes:
    """Return a part as it is kept under the key of its call; `about` is what an `AttemptLog` has beside its lines."""
    text = b'%b,"lines":[%b]}' % (orjson.dumps(about)[:-1], b",".join(lines))
    return b"%016d %d %b" % (made_us, len(lines), seal.close_kept(text, key))


def open_log(seal: Seal, key: str, call_id: str, parts: Iterable[bytes], lost: float) -> CallLog:
    """Return the log of a call from its parts, in whatever order. What nobody of the fleet has sealed is not in it.

    `lost` is what Redis says of lines that were dropped: nobody has sealed that.
    """
    believed = [found for part in sorted(parts) if (found := _opened(seal, key, part)) is not None]
    attempts: dict[tuple[int, float, str], AttemptLog] = {}
    for part in believed:
        name = part.attempt, part.began_unix_s, part.worker
        known = attempts.get(name)
        attempts[name] = part if known is None else known.model_copy(update={"lines": known.lines + part.lines})
    in_order = sorted(attempts.values(), key=attrgetter("attempt", "began_unix_s"))
    return CallLog(call_id=call_id, lost=int(min(max(lost, 0), 1e9)), attempts=tuple(in_order))


def _opened(seal: Seal, key: str, part: bytes) -> AttemptLog | None:
    _, _, sealed = part.partition(b" ")[2].partition(b" ")
    try:
        return AttemptLog.model_validate_json(seal.open_kept(sealed, key), extra="ignore")
    except (Refused, ValidationError) as error:
        skip("call log", error)
        return None
