"""How a task stands: its run as the sealed history has it, and what a person is asked for it just now. Reads only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from a2a.types import TaskState

from toolfleet.orchestrator.doors.http.door import Door, must_be_theirs
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.orchestrator.status.questions import AwaitedAnswer
from toolfleet.orchestrator.store.history import Stored

ENDS = {
    State.DONE: TaskState.TASK_STATE_COMPLETED,
    State.FAILED: TaskState.TASK_STATE_FAILED,
    State.CANCELLED: TaskState.TASK_STATE_CANCELED,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A task at one moment."""

    run: Run
    updated_ms: int
    """When the newest of its history was written, by the server's clock."""
    questions: tuple[AwaitedAnswer, ...] = ()

    @property
    def approvals(self) -> tuple[CallRecord, ...]:
        """The calls that a person has to decide about."""
        return () if self.has_ended else self.run.awaiting_approval

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.run.state.is_terminal

    @property
    def state(self) -> TaskState:
        """What it is called in A2A. A model that would not answer has rejected its task."""
        if self.run.state is State.DONE and self.run.incomplete is Incomplete.REFUSAL:
            return TaskState.TASK_STATE_REJECTED
        if self.has_ended:
            return ENDS[self.run.state]
        return TaskState.TASK_STATE_INPUT_REQUIRED if self.asks else TaskState.TASK_STATE_WORKING

    @property
    def asks(self) -> tuple[str, ...]:
        """The ids of what a person is asked: of calls to approve, and of questions."""
        return (*(call.call_id for call in self.approvals), *(each.question_id for each in self.questions))

    @property
    def asks_digest(self) -> str:
        """What tells one set of questions from another."""
        return hashlib.sha256("\0".join(self.asks).encode()).hexdigest()[:16]


async def standing_of(door: Door, grant: Grant, task_id: str) -> Standing:
    """Return how a task stands. Raises RunNotFound, for another tenant's too, and StoreUnreachable."""
    stored = await door.looking.seen.load(task_id)
    must_be_theirs(task_id, stored.run.terms.tenant, grant)
    return await standing_for(door, stored)


async def standing_for(door: Door, stored: Stored) -> Standing:
    """Return the same of a run that was read already, whoever asks."""
    updated_ms = int(stored.link.entry_id.partition("-")[0])
    if stored.run.state.is_terminal:
        return Standing(stored.run, updated_ms)
    run = await with_approvals_below(door.looking.seen, stored.run)
    questions = await door.looking.questions.of_run(run.run_id, tenant=run.terms.tenant)
    return Standing(run, updated_ms, tuple(questions))
