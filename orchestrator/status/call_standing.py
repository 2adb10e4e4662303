"""How one call stands, as whoever looks is told: a record."""

from __future__ import annotations

from pydantic import Field

from toolfleet.calls import Failed, Progress, Record, Returned, Submitted
from toolfleet.masks import MASK, mask_arguments
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.holding import HeldBy, WaitsFor
from toolfleet.tool import ToolSpec


class JobStanding(Record):
    """A job in another system that a call waits for."""

    external_id: str
    polls: int
    errors: int
    """Polls that failed in a row."""
    next_poll_s: float | None
    """None where nobody polls: only its completion from outside can end it in time."""


class CallStanding(Record):
    """How one call stands now. `age_s` counts from when it was sent; None for one that was not.

    That it was sent is written down a moment later, and not at all where its run ends in that moment: without it,
    `age_s` counts from when a worker has taken the call, and the deadline is None.
    """

    call_id: str
    run_id: str
    turn: int = 0
    tool: str = ""
    arguments: str = ""
    """With secrets masked; all of it where no live worker says which parameters hold secrets."""
    digest: str = Field(default="", exclude_if=lambda digest: not digest)
    """What a person approves, or has approved, of one that waits for that: SHA-256 of id, tool and arguments."""
    state: CallState
    age_s: float | None = None
    deadline_unix_s: float | None = None
    handle: str = ""
    attempt: int | None = None
    """How often a worker was given it; None where its queue was not looked at, or does not tell."""
    worker: str = ""
    """Who has ended it, "" where no worker has."""
    began_unix_s: float | None = None
    """When that worker had it; None where no worker has ended it."""
    ended_unix_s: float | None = None
    """When it ended or, where no worker has ended it, when its run took note of that."""
    trace_id: str = Field(default="", exclude_if=lambda trace_id: not trace_id)
    """The trace that its run is in, which its log lines name too; "" where the run was begun untraced."""
    took_s: float | None = None
    """From its beginning to its end; with the time in the queue where its beginning is not known."""
    queue_position: int | None = None
    """How many calls are taken before it."""
    waits_for: WaitsFor | None = None
    """Why it waits in its queue."""
    held_by: HeldBy | None = None
    """Which worker has it now."""
    progress: Progress | None = None
    job: JobStanding | None = None
    result: Returned | Failed | Submitted | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state.is_terminal

    def masked(self, spec: ToolSpec | None) -> CallStanding:
        """The same for whoever only looks."""
        shown = mask_arguments(self.arguments, spec.input_schema) if spec else self.arguments and MASK
        return self.model_copy(update={"arguments": shown})
