"""The history of a run that has ended, packed: its entries byte for byte, compressed into one.

It stands in the stream where the last of them stood, with that one's id and seal: whoever reads or writes behind the
last entry sees no difference, and whoever reads the entries before it unpacks. What a pack says is believed as little,
and as much, as if it stood there entry by entry: the seals are inside. Pure.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from typing import Final

from toolfleet.redis_clients import StreamEntry

FIELD: Final = b"p"
"""The field of a stream's first entry that makes it a pack, and the name of the form: another one has another field."""

MAX_BYTES: Final = 64 * 1024
"""Longer histories stay as they are: of those the stream's own overhead is little, and they are read in pages."""

_WINDOW: Final = -14
"""Raw deflate (RFC 1951) that looks 16 KB back: with zlib's own sizes most of the time would go into its memory."""

_TABLES: Final = 6

_HEADING: Final = re.compile(rb"(\d{1,18}-\d{1,18}) (\d{1,6}) (\d{1,6})\n")
"""What stands before each entry but the last: its id, and how long its seal and its event are."""

_OFTEN: Final = (
    b'{"type":"run_resumed","messages":[{"role":"user","content":""}],"subject":null}'
    b'{"type":"run_adopted","orchestrator_id":""}{"type":"approval_given","call_id":"","approval":{"approved":true,'
    b'{"type":"run_stopped","state":"cancelled","reason":"","fault":null,"results":{},"messages":[]}'
    b'{"type":"calls_parked","results":{},"messages":[],"handles":{}}{"type":"submitted","handle":"","message":""}'
    b'{"type":"failed","kind":"","message":"","retryable":false}'
    b'{"type":"run_started","run_id":"","messages":[{"role":"system","content":""},{"role":"user","content":""}],'
    b'"model":"","terms":{"tools":null,"slow":"wait","patience_s":null,"context":{},"state":{},"merging":{},'
    b'"interceptors":[],"limits":{"calls":150,"calls_per_tool":40,"tokens":null,"cost":null,"input_price":0.0,'
    b'"output_price":0.0},"max_turns":100,"timeout_s":null,"turn_timeout_s":null,"compensate":false,"keep_s":null,'
    b'"model_options":{},"output_schema":null,"client_tools":[],"priority":"normal","tenant":""},'
    b'"deadline_unix_s":null,"parent_call_id":null,"depth":0,"agent":"","started_unix_s":17,"orchestrator_id":"'
    b'{"type":"calls_sent","deadlines_unix_s":{".1.0":17},"direct":[],"agents":[],"awaiting_approval":[]}'
    b'{"type":"calls_back","results":{".1.0":{"attempt":{"worker":"","number":1,"began_unix_s":17,"ended_unix_s":17},'
    b'"type":"returned","content":"","state":{},"attributes":{},"artifact":null}},"messages":[{"role":"tool",'
    b'"tool_call_id":"call_","name":"","content":"","is_error":false}],"fetched":{}}'
    b'{"type":"model_replied","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_","name":"",'
    b'"arguments":"{\\"\\":\\"\\"}"}]},"usage":{"input_tokens":,"output_tokens":},"incomplete":null,"masked":[],'
    b'"offered":null,"problem":null,"over_limit":null}'
)
"""What events look like, a preset dictionary: it makes a short history a third as long as without.

It is part of the form. Whoever changes it calls the field otherwise, or nobody can read what is stored.
"""


def packed(entries: Sequence[StreamEntry]) -> dict[bytes, bytes] | None:
    """Return the fields of the one entry that stands for these; None where it would not be the same, or too long.

    The last of them must be the newest one of the stream: the pack takes its id.
    """
    if len(entries) < 2 or any(fields.keys() != {b"e", b"s"} for _, fields in entries):
        return None
    *earlier, (_, last) = entries
    parts = [b"%d\n" % len(earlier)]
    for entry_id, fields in earlier:
        parts += [b"%s %d %d\n" % (entry_id, len(fields[b"s"]), len(fields[b"e"])), fields[b"s"], fields[b"e"]]
    text = b"".join([*parts, last[b"e"]])
    if len(text) > MAX_BYTES:
        return None
    deflating = zlib.compressobj(wbits=_WINDOW, memLevel=_TABLES, zdict=_OFTEN)
    return {FIELD: deflating.compress(text) + deflating.flush(), b"s": last[b"s"]}


def unpacked(found: Sequence[StreamEntry], *, since: str = "-") -> list[StreamEntry]:
    """Return the entries of a stream as they were written, from this id on; `found` was read from there to somewhere.

    What looks like a pack and is none stays as it is: an entry without an event.
    """
    if not found or FIELD not in found[0][1]:
        return list(found)
    first = (0, 0) if since == "-" else order_of(since)
    try:
        entries = _entries(*found[0])
    except (ValueError, LookupError, zlib.error):
        return list(found)
    return [*(entry for entry in entries if order_of(entry[0].decode()) >= first), *found[1:]]


def order_of(entry_id: str) -> tuple[int, int]:
    """Return the place of an entry: its milliseconds, and its number within them. Raises ValueError."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


def next_id(entry_id: str) -> str:
    """Return the first id behind an entry."""
    milliseconds, number = order_of(entry_id)
    return f"{milliseconds}-{number + 1}"


def _entries(entry_id: bytes, fields: dict[bytes, bytes]) -> list[StreamEntry]:
    """The entries of a pack, with ids that ascend. Raises ValueError, LookupError or zlib.error for what is none."""
    # One byte more than can be: what anybody may have put there is not to fill the memory.
    text = BytesIO(zlib.decompressobj(_WINDOW, zdict=_OFTEN).decompress(fields[FIELD], MAX_BYTES + 1))
    entries: list[StreamEntry] = []
    for _ in range(int(text.readline())):
        heading = _HEADING.fullmatch(text.readline())
        if heading is None:
            raise ValueError("no pack of ours")
        seal = text.read(int(heading[2]))
        entries.append((heading[1], {b"e": text.read(int(heading[3])), b"s": seal}))
    entries.append((entry_id, {b"e": text.read(), b"s": fields[b"s"]}))
    orders = [(0, 0), *(order_of(each.decode()) for each, _ in entries)]
    if len(text.getbuffer()) > MAX_BYTES or any(one >= other for one, other in pairwise(orders)):
        raise ValueError("no pack of ours")
    return entries
