"""A run as the steps of the loop are handed it."""

from __future__ import annotations

from dataclasses import dataclass

from toolfleet.orchestrator.calls.scope import BeginRun, Emit
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.journal import Journal


@dataclass(frozen=True, slots=True)
class RunAtWork:
    """A run that is worked on here: the only way to change it, who looks on, and how its agents' runs begin."""

    journal: Journal
    emit: Emit | None
    begin: BeginRun

    @property
    def run(self) -> Run:
        """The run as it stands now. Ask again after every write: each makes another value."""
        return self.journal.run
