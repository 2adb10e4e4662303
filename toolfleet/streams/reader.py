"""What to read next, and what a reply means. No I/O: commands go out and replies come in through the channel.

Two ways to read. FETCH is a script: exact in its credit, strict in its levels, it claims calls, looks for cancels,
takes returned and scheduled messages, and never waits. BLOCK is a plain XREADGROUP over all streams: it waits, so a
lone message arrives at once and costs no second round trip. After a FETCH that found less than it may take comes BLOCK;
after a BLOCK that found more than a little, or nothing for its whole time, comes FETCH.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from toolfleet.keys import Keys
from toolfleet.streams import scripts
from toolfleet.streams.entries import DeliveredEntry
from toolfleet.streams.names import GROUP, RETURNED, home_of

LATE_REPLY_S: Final = 0.5
"""A reply read later than this after its time was waiting here; others may have taken over what it brings."""

PAUSE_AFTER_REFUSAL_S: Final = 1.0
"""How long reading rests after Redis refused it (out of memory, no permission, loading a snapshot)."""

FETCH_EVERY_S: Final = 1.0
"""Returned and scheduled messages wait at most this long for a worker that is busy with new ones."""


LOOK_AT_ONCE: Final = -2
"""What a FETCH says that has not got through what must not be read without looking."""

SAY_SLOTS_EVERY_S: Final = 5.0
"""How often a reader says how many messages it takes at once; what it says lasts for 20 seconds."""


class Read(NamedTuple):
    """A read that was sent and not answered yet."""

    streams: Sequence[str]
    budget: int
    per_stream: int
    """Entries that a BLOCK may bring of each stream; 0 for a FETCH."""
    sent_s: float


class Reader:
    """Decides on one channel's reads. `queues` come in the order in which they take their turn."""

    def __init__(self, keys: Keys, levels: Sequence[int], consumer: str) -> None:
        self._keys = keys
        self._levels = levels
        self._consumer = consumer
        self._fetch = True
        self._fetched_s = float("-inf")
        self._next_due_ms = -1
        self._said = self._saying = (0, float("-inf"))

    def streams(self, queues: Iterable[str]) -> list[str]:
        """Return the streams of these queues, level by level."""
        names = list(queues)
        return [self._keys.queue(queue, level) for level in self._levels for queue in names]

    def look_for_everything(self) -> None:
        """Make the next read a FETCH, because something has changed."""
        self._fetch = True

    def would_wait(self, now_s: float) -> bool:
        """Return whether the next read is a BLOCK."""
        return not self._fetch and now_s - self._fetched_s < FETCH_EVERY_S

    def next_read(
        self, queues: Sequence[str], budget: int, now_s: float, wait_ms: int, *, slots: int = 0
    ) -> tuple[Read, list[str | int]]:
        """Return the next read and its command. `slots`: how many messages the reader takes at once (0: not told)."""
        streams = self.streams(queues)
        if not self.would_wait(now_s):
            self._fetched_s = now_s
            return Read(streams, budget, 0, now_s), self.fetch_command(
                streams, queues, budget, slots=self._to_say(slots, now_s)
            )
        count = max(1, budget // len(streams))
        if self._next_due_ms >= 0:
            wait_ms = min(wait_ms, self._next_due_ms)
        command: list[str | int] = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count]
        command += ["BLOCK", max(1, wait_ms), "STREAMS", *streams, *(">" * len(streams))]
        return Read(streams, budget, count, now_s), command

    def _to_say(self, slots: int, now_s: float) -> int:
        """Return `slots` when it is time to say it, else 0."""
        said, said_s = self._said
        if slots == said and now_s - said_s < SAY_SLOTS_EVERY_S:
            return 0
        self._saying = slots, now_s
        return slots

    def fetch_command(
        self, streams: Sequence[str], queues: Sequence[str], budget: int, *, slots: int = 0
    ) -> list[str | int]:
        """Return the call of the fetch script."""
        return [
            "EVALSHA",
            scripts.FETCH_SHA,
            len(streams),
            *streams,
            *(GROUP, self._consumer, RETURNED, budget),
            *(self._keys.claim(""), self._keys.cancelled(""), self._keys.result(""), self._keys.counters()),
            slots,
            # What is not due yet waits for the queue, never for one of its lanes.
            *(self._keys.scheduled(queue) for queue in queues if home_of(queue) is None),
        ]

    def deliveries(self, read: Read, reply: Any) -> list[DeliveredEntry]:
        """Return what a reply delivers, and remember what to read next."""
        return self._take_waited(read, reply) if read.per_stream else self.take_fetched(read, reply)

    def take_fetched(self, read: Read, reply: Any) -> list[DeliveredEntry]:
        """Return what a reply of the fetch script delivers."""
        self._next_due_ms, found = reply
        self._said = self._saying  # not before: the script may have been refused
        delivered = [entry for told in found for entry in _alike(read.streams, told)]
        self._fetch = len(delivered) >= read.budget or self._next_due_ms == LOOK_AT_ONCE
        return delivered

    def _take_waited(self, read: Read, reply: Any) -> list[DeliveredEntry]:
        by_stream = _by_stream(reply)
        # Nothing for a whole wait, or as much as was asked for: there may be more, or returned and scheduled ones.
        self._fetch = not by_stream or any(len(entries) >= read.per_stream for entries in by_stream.values())
        return [
            DeliveredEntry(stream, entry_id.decode(), 1, False, fields[::2], fields[1::2])
            for stream in read.streams
            for entry_id, fields in by_stream.get(stream, ())
        ]


def _alike(streams: Sequence[str], told: Sequence[Any]) -> list[DeliveredEntry]:
    """Return entries in a row, of which the fetch script says once what is true of all of them."""
    position, deliveries, claimed, cancelled, returned, names, parts = told
    stream, width = streams[position - 1], 1 + len(names)  # the parts of each: its id, and its values
    is_claimed, flags = bool(claimed), (bool(cancelled), bool(returned))
    return [
        DeliveredEntry(stream, parts[at].decode(), deliveries, is_claimed, names, parts[at + 1 : at + width], *flags)
        for at in range(0, len(parts), width)
    ]


def _by_stream(reply: Any) -> dict[str, list[tuple[bytes, list[bytes]]]]:
    """Return XREADGROUP's reply by stream: it is a list of pairs in RESP2, a map in RESP3."""
    pairs = reply.items() if isinstance(reply, dict) else (reply or ())
    return {stream.decode(): entries for stream, entries in pairs}
