"""Runs as they were last read: whoever asks again and again how a run stands has only what is new read and folded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from toolfleet.orchestrator.errors import RunNotBelieved, RunNotFound
from toolfleet.orchestrator.store.history import Stored
from toolfleet.orchestrator.store.run_store import RunStore

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of their entries; the records that these are read into take two or three times as much."""


class SeenRuns:
    """Reads runs for those who only look: what they are given is shared, and must not be changed."""

    def __init__(self, store: RunStore, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept_bytes = kept_bytes
        self._seen: OrderedDict[str, Stored] = OrderedDict()
        """The one that was asked for last stands last."""
        self._bytes = 0

    async def load(self, run_id: str) -> Stored:
        """Read a run as it stands now. Raises as `RunStore.load`."""
        seen = self._seen.get(run_id)
        try:
            found = await (self._store.load(run_id) if seen is None else self._store.load_since(run_id, seen))
        except (RunNotFound, RunNotBelieved):
            self._forget(run_id)
            raise
        self._forget(run_id)
        self._seen[run_id] = found
        self._bytes += found.size_bytes
        while self._bytes > self._kept_bytes:
            self._forget(next(iter(self._seen)))
        return found

    def _forget(self, run_id: str) -> None:
        seen = self._seen.pop(run_id, None)
        if seen is not None:
            self._bytes -= seen.size_bytes
