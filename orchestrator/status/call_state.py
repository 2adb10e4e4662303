"""The state of a call: ten words, and the one place that decides between them.

Whoever tells how a call stands (a handle, an overview, MCP, HTTP, the command line, a model's `task_result`) gathers
`CallFacts` and asks `call_state`. Pure: no clock, no Redis, no await. `MOVES` says what leads from one state to
another; the diagram in docs/slow-tools.md is printed from it, and a test tries every set of facts against it.

What decides, the strongest first:

1. A result. It is the only thing that says how a call has ended, whatever else is still lying about.
2. The deadline. Without a result, a call whose deadline has passed is `expired`, though a worker may still hold it: no
   answer of the fleet will be waited for any longer.
3. What is seen in Redis: a job elsewhere, the call's message in its queue, its progress, the run that answers it. That
   goes for the calls of a run that has ended as for any other: a run's end calls its calls off, and until a worker has
   heeded that, the call goes on. What the run's model was told of it then ("may or may not have happened") is no end.
4. The run. Nothing tells of the call: a run that was cancelled or has failed called its calls off, so the call is
   `cancelled`; a run that is done does not say what became of a call that it left, so the call is `unknown`.

What happens when a process dies. When a worker dies, its call is `running` until its lease ends; then it is `queued`
again if the tool may be repeated, and `in_doubt` if not. When an orchestrator dies nothing changes here: its runs'
calls go on, and no state depends on who owns the run. When the poller of a job elsewhere dies, the call is `submitted`
all the while, and another worker goes on asking.

An answer that a call is over is never taken back once it rests on a result. `expired` without a result can only become
another end: a result that comes late counts, unless the run has recorded that the call expired. `cancelled` without a
result is a conclusion from silence, and what breaks the silence corrects it: a worker that has not heeded the run's end
yet and reports progress (with a broker that tells no queue positions, nothing else shows that it has the call), and a
run that is resumed, which waits for its open calls again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolfleet.calls import Failed, FailureKind, Returned, Submitted, ToolResult
from toolfleet.orchestrator.fleet.queue_position import QueuePosition
from toolfleet.orchestrator.run.states import State


class CallState(StrEnum):
    """Where a call stands."""

    QUEUED = "queued"
    """The call waits to be taken by a worker, or was sent and nothing has been heard of it yet.

    A worker takes it, its deadline passes, or it is called off. A call that its run has not sent yet is queued too.
    With another broker than the built-in streams a call stays queued until its tool reports progress or it ends."""
    RUNNING = "running"
    """A worker has the call, or a run of an agent works on its answer.

    It ends, becomes a job elsewhere, or goes back to its queue. If its worker dies, the call is running until the
    worker's lease ends; then it is queued again if it may be repeated, and in doubt if not."""
    SUBMITTED = "submitted"
    """Another system does the work.

    It ends when a poll or a callback brings a result, when it is cancelled, or when its deadline passes. If the worker
    that polls dies, another one goes on."""
    AWAITING_APPROVAL = "awaiting_approval"
    """The call was not sent: a person has to allow it.

    It is queued once it is approved and failed once it is denied; it is cancelled with its run."""
    SUCCEEDED = "succeeded"
    """The tool returned. Nothing leads out of it."""
    FAILED = "failed"
    """The call ended with an error, of which its result tells. Nothing leads out of it."""
    CANCELLED = "cancelled"
    """The call was called off, by itself or with its run.

    Nothing leads out of it once that is its result. Until then its own result may still come, and the call is shown as
    under way again if its worker reports progress after all, or if its run is resumed."""
    EXPIRED = "expired"
    """The deadline has passed and no result has come: the call may or may not have run.

    Nothing leads out of it once that is its result. Until then its own result may still come."""
    IN_DOUBT = "in_doubt"
    """The worker died while the call ran, and the call must not be repeated: it may or may not have had its effect.

    Nothing leads out of it."""
    UNKNOWN = "unknown"
    """Nothing tells of the call: no stored run has asked for it, or its run is done and has left it.

    Its result may still come, or its deadline may pass; it may also never have existed."""

    @property
    def is_terminal(self) -> bool:
        """Whether the call has ended."""
        return self in _TERMINAL

    @property
    def is_under_way(self) -> bool:
        """Whether somebody owes the call's result. Of an unknown call nobody can say so."""
        return not self.is_terminal and self is not CallState.UNKNOWN


_TERMINAL: Final = frozenset(
    {CallState.SUCCEEDED, CallState.FAILED, CallState.CANCELLED, CallState.EXPIRED, CallState.IN_DOUBT}
)


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is known of a call at one moment: everything that its state depends on, and nothing else."""

    result: Returned | Failed | None = None
    """How it ended: as its run has recorded it or, before that, as it is stored."""
    has_job: bool = False
    """Whether a job in another system stands in for it."""
    queue_position: QueuePosition | None = None
    """Where its message is, if it was found."""
    has_progress: bool = False
    """Whether its tool has said how far it is."""
    child_run: State | None = None
    """The state of the run that answers it; None for a call that no stored run answers."""
    awaits_approval: bool = False
    """Whether a person has still to decide about it."""
    was_sent: bool = False
    """Whether it is known that it was sent."""
    deadline_passed: bool = False
    """Whether its deadline has passed, and the time too that a result may take to arrive."""
    run: State | None = None
    """The state of the run that asked for it; None for a call of no stored run."""


def call_state(facts: CallFacts) -> CallState:
    """Decide the state of a call. There is one for any facts."""
    if facts.result is not None:
        return result_state(facts.result)
    if facts.deadline_passed:
        return CallState.EXPIRED
    return _seen(facts) or _concluded(facts)


def result_state(result: ToolResult) -> CallState:
    """The state that a result puts its call into."""
    match result:
        case Returned():
            return CallState.SUCCEEDED
        case Submitted():
            return CallState.SUBMITTED
        case Failed(kind=kind):
            return _OF_FAILURES.get(kind, CallState.FAILED)


_OF_FAILURES: Final = {
    FailureKind.CANCELLED: CallState.CANCELLED,
    FailureKind.EXPIRED: CallState.EXPIRED,
    FailureKind.IN_DOUBT: CallState.IN_DOUBT,
}


def _seen(facts: CallFacts) -> CallState | None:
    """The state that something in Redis tells of; None when nothing does."""
    if facts.has_job:
        return CallState.SUBMITTED
    if facts.queue_position is not None:
        return CallState.RUNNING if facts.queue_position.is_with_worker else CallState.QUEUED
    if facts.has_progress or (facts.child_run is not None and not facts.child_run.is_terminal):
        return CallState.RUNNING
    return None


def _concluded(facts: CallFacts) -> CallState:
    """The state of a call that nothing in Redis tells of."""
    if facts.run in {State.CANCELLED, State.FAILED}:
        return CallState.CANCELLED
    if facts.run is State.DONE:
        return CallState.UNKNOWN
    if facts.child_run is not None:
        # Its answer is there, and its caller is about to take it as the call's result.
        return CallState.RUNNING
    if facts.awaits_approval:
        return CallState.AWAITING_APPROVAL
    if facts.was_sent or facts.run is not None:
        return CallState.QUEUED
    return CallState.UNKNOWN


MOVES: Final[dict[CallState, dict[CallState, str]]] = {
    CallState.QUEUED: {
        CallState.AWAITING_APPROVAL: "a person has to allow it",
        CallState.RUNNING: "a worker takes it",
        CallState.SUBMITTED: "its worker started a job elsewhere",
        CallState.SUCCEEDED: "it ended before anything else was heard of it",
        CallState.FAILED: "it ended before anything else was heard of it",
        CallState.IN_DOUBT: "its worker was lost before anything else was heard of it",
        CallState.CANCELLED: "called off",
        CallState.EXPIRED: "its deadline passes",
        CallState.UNKNOWN: "its run is done and left it",
    },
    CallState.RUNNING: {
        CallState.QUEUED: "handed back, or its worker is lost and it may be repeated",
        CallState.SUBMITTED: "the tool started a job elsewhere",
        CallState.SUCCEEDED: "the tool returned",
        CallState.FAILED: "the tool failed",
        CallState.IN_DOUBT: "its worker is lost and it must not be repeated",
        CallState.CANCELLED: "called off",
        CallState.EXPIRED: "its deadline passes",
        CallState.UNKNOWN: "its run is done and nothing tells of it any more",
    },
    CallState.SUBMITTED: {
        CallState.SUCCEEDED: "the job is done",
        CallState.FAILED: "the job failed",
        CallState.CANCELLED: "called off",
        CallState.EXPIRED: "its deadline passes",
    },
    CallState.AWAITING_APPROVAL: {
        CallState.QUEUED: "approved",
        CallState.FAILED: "denied",
        CallState.CANCELLED: "called off with its run",
    },
    CallState.UNKNOWN: {
        CallState.RUNNING: "its worker reports progress",
        CallState.SUBMITTED: "its tool started a job elsewhere",
        CallState.SUCCEEDED: "its result comes after all",
        CallState.FAILED: "its result comes after all",
        CallState.IN_DOUBT: "its result comes after all",
        CallState.CANCELLED: "its result comes after all",
        CallState.EXPIRED: "its deadline passes",
    },
    **{state: {} for state in sorted(_TERMINAL)},
}
"""What leads from one state to the next, and why. Every state has a row; that of an end is empty."""
