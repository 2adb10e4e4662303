"""Files whose times say that a process still works: for a probe that costs a look at a folder, and no start of Python.

Each part that could stand still by itself has a file of its own: `lease` (a worker's companion, or an orchestrator,
renews its lease) and `loop` (the event loop of a worker's tools turns). While the server cannot be reached, or refuses,
the lease is not what fails: to restart a process would bring nothing back, and would put calls in doubt.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Final

from toolfleet.logs import FactLog

log = FactLog("toolfleet")

LEASE: Final = "lease"
LOOP: Final = "loop"

EVERY_S: Final = 5.0
"""How often a file is written at most."""


class SignOfLife:
    """One part's file, in the folder that the setting `alive_dir` names; without one, nothing is written."""

    def __init__(self, folder: str, part: str) -> None:
        self._path = Path(folder, part) if folder else None
        self._shown_s = -EVERY_S
        self._is_told = False
        """Whether it is told that the file cannot be written."""

    @property
    def path(self) -> str:
        """Where it is; empty where none is wanted."""
        return str(self._path or "")

    def show(self) -> None:
        """Say that this part works. Never fails: a probe finds a file that is not written."""
        if self._path is None or monotonic() - self._shown_s < EVERY_S:
            return
        self._shown_s = monotonic()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        except OSError as error:
            if not self._is_told:
                log.warning("sign_of_life_not_written", path=str(self._path), error=str(error))
            self._is_told = True
