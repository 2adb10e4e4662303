"""Runs as they were last read: whoever asks again and again how a run stands has only what is new read and folded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from toolfleet.orchestrator.run.events import CallsBack, RunStopped, SlowResultDelivered, sending_in
from toolfleet.orchestrator.store.history import Entry, Stored
from toolfleet.orchestrator.store.run_store import RunStore

KEPT_BYTES: Final = 32 * 1024 * 1024
"""What may be kept, about, in each process."""

_RUN_BYTES: Final = 5_000
_OF_ENTRIES: Final = 3
"""What a run takes, measured: so much, and so many times its entries."""


class CallTimes(NamedTuple):
    """When calls were sent, and when it was written down that they had ended, by call id; and the newest event."""

    sent_unix_s: dict[str, float]
    back_unix_s: dict[str, float]
    changed_unix_s: float

    def after(self, entries: Sequence[Entry]) -> Self:
        """Return them with these entries behind."""
        sent_unix_s, back_unix_s = dict(self.sent_unix_s), dict(self.back_unix_s)
        for entry in entries:
            if (sent := sending_in(entry.event)) is not None:
                sent_unix_s.update(dict.fromkeys(sent.deadlines_unix_s, entry.at_unix_s - sent.held_s))
            match entry.event:
                case CallsBack(results=results, fetched=fetched):
                    back_unix_s.update(dict.fromkeys([*results, *fetched], entry.at_unix_s))
                case SlowResultDelivered(results=results) | RunStopped(results=results):
                    back_unix_s.update(dict.fromkeys(results, entry.at_unix_s))
        changed_unix_s = entries[-1].at_unix_s if entries else self.changed_unix_s
        return self._replace(sent_unix_s=sent_unix_s, back_unix_s=back_unix_s, changed_unix_s=changed_unix_s)


NO_TIMES: Final = CallTimes({}, {}, 0.0)


class Seen(NamedTuple):
    """A run as it was read."""

    stored: Stored
    times: CallTimes


class SeenRuns:
    """Reads runs for those who only look: what they are given is shared, and must not be changed."""

    def __init__(self, store: RunStore, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept_bytes = kept_bytes
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        """The one that was asked for last stands last."""
        self._bytes = 0

    async def load(self, run_id: str) -> Stored:
        """Read a run as it stands now. Raises as `RunStore.load`."""
        return (await self.read(run_id)).stored

    async def read(self, run_id: str) -> Seen:
        """The same, with the times of its calls. Raises as `load`."""
        seen = self._seen.get(run_id)
        news = None if seen is None else await self._store.history_since(run_id, seen.stored)
        if seen is None or news is None:
            self._forget(run_id)
            stored, entries = await self._store.history(run_id)
            found = Seen(stored, NO_TIMES.after(entries))
        else:
            stored, entries = news
            found = Seen(stored, seen.times.after(entries) if entries else seen.times)
        self._forget(run_id)  # others may have read it meanwhile
        if _size(stored) <= self._kept_bytes:  # else it would put all others out
            self._seen[run_id] = found
            self._bytes += _size(stored)
        while self._bytes > self._kept_bytes:
            self._forget(next(iter(self._seen)))
        return found

    def _forget(self, run_id: str) -> None:
        seen = self._seen.pop(run_id, None)
        if seen is not None:
            self._bytes -= _size(seen.stored)


def _size(stored: Stored) -> int:
    return _RUN_BYTES + _OF_ENTRIES * stored.size_bytes
