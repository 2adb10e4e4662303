"""A run's history as it is read: what of it is believed, what that amounts to, and what has to be cut off.

Decides; reads nothing itself. An entry that this fleet has sealed and this version cannot read is a newer version's,
and is left alone; what is not sealed, or cannot have happened, is no part of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from pydantic import ValidationError

from toolfleet.orchestrator.errors import IllegalTransition, NewerVersion
from toolfleet.orchestrator.run.events import RUN_EVENT, RunAdopted, RunEvent, RunResumed, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.chain import Link, RawEntry, Vouched, believed
from toolfleet.wire import Seal


class Entry(NamedTuple):
    """One stored event, and where it stands."""

    id: str
    event: RunStarted | RunEvent
    link: Link

    @property
    def at_unix_s(self) -> float:
        """When it was stored, by the server's clock: its id begins with it."""
        return int(self.id.partition("-")[0]) / 1000


class Read(NamedTuple):
    """What was read of a run: the entries that are believed, and the raw ones behind them that are not."""

    entries: list[Entry]
    tail: list[RawEntry]


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as it was read, and the entry that its next event follows."""

    run: Run
    link: Link
    owner: str = ""
    """The orchestrator that works on it, by its history; "" for nobody."""
    tail: tuple[RawEntry, ...] = ()
    """What stands behind that entry and is no part of the run."""
    size_bytes: int = 0
    """Of its entries."""


def read(seal: Seal, run_id: str, follows: Link, raw: Sequence[RawEntry], vouched: Vouched | None = None) -> Read:
    """Return what is believed of these entries. Raises NewerVersion."""
    links = believed(seal, run_id, follows, raw, vouched)
    entries = [Entry(each.id, _event(run_id, each), link) for each, link in zip(raw, links, strict=False)]
    return Read(entries, list(raw[len(links) :]))


def stored(found: Read, raw: Sequence[RawEntry]) -> Stored | None:
    """Return the run that entries tell of; None when they do not tell of one. `raw`: the same, as they were read."""
    if not found.entries or not isinstance(first := found.entries[0].event, RunStarted):
        return None
    begun = Stored(Run.start(first), found.entries[0].link, first.orchestrator_id, size_bytes=len(raw[0].event))
    return followed(begun, found.entries[1:], raw[1:])


def followed(seen: Stored, entries: Sequence[Entry], raw: Sequence[RawEntry]) -> Stored:
    """Return a run that was read before, after the entries that came since. `raw`: the same, as they were read."""
    run, owner, link, size_bytes = seen.run, seen.owner, seen.link, seen.size_bytes
    for entry, each in zip(entries, raw, strict=False):
        try:
            run = after(run, entry)
        except IllegalTransition:
            break
        owner, link, size_bytes = _owner_after(owner, entry.event), entry.link, size_bytes + len(each.event)
    tail = tuple(raw[link.position - seen.link.position :])
    return Stored(run, link, "" if run.state.is_terminal else owner, tail, size_bytes)


def after(run: Run, entry: Entry) -> Run:
    """Return the run after an entry. Raises IllegalTransition."""
    if isinstance(entry.event, RunStarted):
        raise IllegalTransition(f"run {run.run_id} has begun already")
    return run.on(entry.event)


def _owner_after(owner: str, event: RunStarted | RunEvent) -> str:
    match event:
        case RunAdopted():
            return event.orchestrator_id
        case RunResumed():
            return ""
        case _:
            return owner


def _event(run_id: str, entry: RawEntry) -> RunStarted | RunEvent:
    try:
        return RUN_EVENT.validate_json(entry.event, extra="ignore")
    except ValidationError as error:
        kind = orjson.loads(entry.event).get("type", "unknown")
        raise NewerVersion(
            f"run {run_id} has an entry that a newer toolfleet wrote ({kind}, {entry.id}): upgrade this process"
        ) from error
