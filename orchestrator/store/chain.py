"""The chain of a run's entries: what binds each to all before it, so that none can be made up, moved or left out.

The digest of an entry is SHA-256 (FIPS 180-4) over that of the entry before it and its own bytes; it begins with the
run's id. What is sealed is the digest and its place, so the seal of one entry speaks for the whole history up to it.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from toolfleet.wire import Seal

FIRST: Final = "0-0"
"""What the first entry of a stream follows."""


class RawEntry(NamedTuple):
    """An entry as it is stored, whoever wrote it."""

    id: str
    event: bytes
    seal: bytes
    """As it stands there: whoever cuts the entry off names it by just these bytes."""

    @classmethod
    def read(cls, entry_id: bytes, fields: Mapping[bytes, bytes]) -> RawEntry:
        """Return an entry of a run's stream."""
        return cls(entry_id.decode(), fields.get(b"e", b""), fields.get(b"s", b""))


class Link(NamedTuple):
    """One place of a chain: an entry, and what stands for the history up to it."""

    position: int
    digest: bytes
    seal: bytes
    entry_id: str

    def digest_with(self, event: bytes) -> bytes:
        """Return what stands for the history with this event behind it."""
        return sha256(self.digest + event).digest()


class Vouched(NamedTuple):
    """A second seal of one entry, made when the secret was changed: it holds once the entry's own does no more."""

    position: int
    seal: str

    @classmethod
    def read(cls, text: bytes) -> Vouched | None:
        """Return the one in a run's head, whoever wrote it there; None for what is none."""
        position, _, seal = text.decode("ascii", "replace").partition(":")
        return cls(int(position), seal) if position.isascii() and position.isdigit() and len(position) < 10 else None

    def __str__(self) -> str:
        return f"{self.position}:{self.seal}"


def beginning(run_id: str) -> Link:
    """Return the place before a run's first entry."""
    return Link(0, sha256(b"toolfleet.run\0" + run_id.encode()).digest(), b"", FIRST)


def believed(
    seal: Seal, run_id: str, follows: Link, entries: Sequence[RawEntry], vouched: Vouched | None = None
) -> list[Link]:
    """Return the links of those entries that the fleet has sealed behind `follows`: all, or the first ones of them."""
    links: list[Link] = []
    link = follows
    for entry in entries:
        link = Link(link.position + 1, link.digest_with(entry.event), entry.seal, entry.id)
        links.append(link)
    # From the end: the last true seal speaks for all before it, also for those whose secret is accepted no more.
    while links and not _is_believed(seal, run_id, links[-1], vouched):
        links.pop()
    return links


def _is_believed(seal: Seal, run_id: str, link: Link, vouched: Vouched | None) -> bool:
    if seal.believes_entry(run_id, link.position, link.digest, link.seal.decode("ascii", "replace")):
        return True
    if vouched is None or vouched.position != link.position:
        return False
    return seal.believes_entry(run_id, link.position, link.digest, vouched.seal)
