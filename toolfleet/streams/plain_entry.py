"""Reads an entry that is written as the fleet's own orchestrators write it, in one pass and without making a message.

What is written otherwise is left to `entries.py`, which bears it or says what is wrong with it. All that is read here,
`entries.py` reads as well, and as the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from toolfleet.streams.entries import MAX_GATES_BYTES, DeliveredEntry, known_properties
from toolfleet.streams.unbelieved import MAX_HEAD_BYTES, MAX_PARSED_BYTES

_UNCLAIMED: Final = [b"b", b"h", b"p", b"id"]
_CLAIMED: Final = [*_UNCLAIMED, b"claim"]
_OF_GATES: Final = [b"gates", b"waits_as"]
_KINDS: Final = (_CLAIMED, _UNCLAIMED, [*_CLAIMED, *_OF_GATES], [*_UNCLAIMED, *_OF_GATES])
_HEADERS: Final = frozenset({"lang", "task", "id", "contract", "claim"})


class PlainEntry(NamedTuple):
    """What such an entry says. Nothing in it is believed yet."""

    call_id: str
    tool: str
    contract: str
    sent_once: bool
    claimed_s: float
    text: str
    mac: str
    gates: str


def plain_entry(entry: DeliveredEntry, max_bytes: int) -> PlainEntry | None:
    """Return what an entry says that comes for the first time; None if it is not one of the common kind."""
    if entry.deliveries != 1 or entry.cancelled or entry.returned or entry.names not in _KINDS:
        return None
    values = entry.values
    body, head, properties = values[:3]
    if len(body) > MAX_PARSED_BYTES or len(body) > max_bytes:
        return None
    if len(head) > MAX_HEAD_BYTES or len(properties) > MAX_HEAD_BYTES:
        return None
    try:
        headers, decoded = orjson.loads(head), orjson.loads(body)
        known_properties(properties)
        claimed_s = float(values[4]) if entry.claimed else 0.0
        gates = _gates(values)
    except (ValueError, IndexError):  # malformed, as its reader will say
        return None
    envelope = _envelope(decoded)
    if envelope is None or not _is_plain(headers, call_id=values[3]):
        return None
    sent_once = bool(headers.get("claim"))
    return PlainEntry(headers["id"], headers["task"], headers["contract"], sent_once, claimed_s, *envelope, gates)


def _gates(values: list[bytes]) -> str:
    """Return the limits that a message has passed, as it tells them. Raises ValueError for what is no such text."""
    if len(values) <= len(_CLAIMED):
        return ""
    gates = values[-len(_OF_GATES)]
    if len(gates) >= MAX_GATES_BYTES:
        raise ValueError("longer than the limits of any tool of ours")
    return gates.decode()


def _is_plain(headers: Any, *, call_id: bytes) -> bool:
    """Whether these are headers that no reader would look at twice, and of this call."""
    if type(headers) is not dict or not headers.keys() <= _HEADERS:
        return False
    name, said_id, contract = headers.get("task"), headers.get("id"), headers.get("contract")
    if type(name) is not str or type(said_id) is not str or type(contract) is not str:
        return False
    return name != "" and said_id != "" and said_id.encode() == call_id


def _envelope(decoded: Any) -> tuple[str, str] | None:
    """Return the text and the MAC of a body that is a task's; None for any other body."""
    match decoded:
        case [[str() as text, str() as mac], dict(), dict()]:
            return text, mac
    return None
