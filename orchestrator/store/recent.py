"""What this orchestrator has written lately, so that it can write it again when the store has lost it.

Holds commands as they were given; each is refused by the store where it does not fit, so all of it may be given again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

REMEMBERED_S: Final = 300.0
"""How long: what a server loses in a crash or a failover is of its last seconds."""

REMEMBERED_BYTES: Final = 32 * 1024 * 1024
"""How much, about: of a busy orchestrator some ten thousand entries."""

_COMMAND_BYTES: Final = 2500
"""What a command takes beside its event."""


class Write(NamedTuple):
    """One entry, as the command that stores it behind the one that it follows."""

    run_id: str
    keys: Sequence[str]
    args: Sequence[Any]
    is_first: bool
    owes: bool
    """Whether the command also stores webhooks."""
    at_s: float
    size_bytes: int


class RecentWrites:
    """The newest writes of one process, in their order."""

    def __init__(self) -> None:
        self._writes: deque[Write] = deque()
        self._bytes = 0

    def note(
        self, run_id: str, keys: Sequence[str], args: Sequence[Any], *, is_first: bool, event_bytes: int, owes: bool
    ) -> None:
        """Take note of an entry that is stored now."""
        now = time.monotonic()
        size_bytes = event_bytes + _COMMAND_BYTES
        self._writes.append(Write(run_id, keys, args, is_first, owes, now, size_bytes))
        self._bytes += size_bytes
        while self._bytes > REMEMBERED_BYTES or self._writes[0].at_s < now - REMEMBERED_S:
            self._bytes -= self._writes.popleft().size_bytes

    def since(self, at_s: float) -> list[Write]:
        """Return what was written from that moment on, by our monotonic clock."""
        return [write for write in self._writes if write.at_s >= at_s]

    def of(self, run_id: str) -> list[Write]:
        """Return what was written of a run."""
        return [write for write in self._writes if write.run_id == run_id]
