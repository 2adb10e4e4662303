"""A run as the steps of the loop are handed it."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolfleet.orchestrator.calls.scope import BeginRun, Emit
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.journal import Journal


@dataclass(slots=True)
class RunAtWork:
    """A run that is worked on here: the only way to change it, who looks on, and how its agents' runs begin."""

    journal: Journal
    emit: Emit | None
    begin: BeginRun
    may_be_sent: set[str] = field(init=False)
    """Calls that may have been sent, although that is not written down: their results may be there already."""

    def __post_init__(self) -> None:
        """Take it that whoever has worked on the run before was lost in the midst of its calls."""
        owed = self.run.calls_owed if self.run.state is State.CALLING else ()
        self.may_be_sent = {call.call_id for call in owed if call.deadline_unix_s is None}

    @property
    def run(self) -> Run:
        """The run as it stands now. Ask again after every write: each makes another value."""
        return self.journal.run
