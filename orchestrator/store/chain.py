"""The chain of a run's entries: what binds each to all before it, so that none can be made up, moved or left out.

The digest of an entry is SHA-256 (FIPS 180-4) over that of the entry before it and its own bytes; it begins with the
run's id. What is sealed is the digest and its place, so the seal of one entry speaks for the whole history up to it.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from toolfleet.wire import Seal

FIRST: Final = "0-0"
"""What the first entry of a stream follows."""


class RawEntry(NamedTuple):
    """An entry as it is stored, whoever wrote it."""

    id: str
    event: bytes
    seal: str


class Link(NamedTuple):
    """One place of a chain: an entry, and what stands for the history up to it."""

    position: int
    digest: bytes
    seal: str
    entry_id: str

    def digest_with(self, event: bytes) -> bytes:
        """Return what stands for the history with this event behind it."""
        return sha256(self.digest + event).digest()


def beginning(run_id: str) -> Link:
    """Return the place before a run's first entry."""
    return Link(0, sha256(b"toolfleet.run\0" + run_id.encode()).digest(), "", FIRST)


def believed(seal: Seal, run_id: str, follows: Link, entries: Sequence[RawEntry]) -> list[Link]:
    """Return the links of those entries that the fleet has sealed behind `follows`: all, or the first ones of them."""
    links: list[Link] = []
    link = follows
    for entry in entries:
        link = Link(link.position + 1, link.digest_with(entry.event), entry.seal, entry.id)
        links.append(link)
    # From the end: the last true seal speaks for all before it, also for those whose secret is accepted no more.
    while links and not seal.believes_entry(run_id, links[-1].position, links[-1].digest, links[-1].seal):
        links.pop()
    return links
