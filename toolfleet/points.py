"""The moments of a call's life at which a crash would hurt most, by name, so that tests can make it happen there.

Does nothing in production: a process without a hook pays one comparison. Hooks come from `toolfleet.testing` only.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Point(StrEnum):
    """Where a process can be made to die. The id that goes with it is the call's, or the run's where that is said."""

    RECEIVED = "received"
    """A worker has been delivered the call and looked at nothing yet."""
    CLAIMED = "claimed"
    """The call is admitted and, if it has an effect, claimed; its tool has not begun."""
    QUESTION_STORED = "question_stored"
    """What the tool asks a person is stored; it waits nowhere yet."""
    LEAVING = "leaving"
    """The attempt has ended with a question and its checkpoint is written; the call is still with its worker."""
    EFFECT_DONE = "effect_done"
    """The tool has returned; nobody has heard of it."""
    SETTLED = "settled"
    """The result is stored, announced and acknowledged; the worker has not taken note."""

    NOTED = "noted"
    """What an interceptor has found out is stored (run id); the model is not asked."""
    REPLY_RECEIVED = "reply_received"
    """The model has replied (run id); nothing is stored."""
    REPLY_STORED = "reply_stored"
    """The reply is stored (run id); its calls are not dispatched."""
    DISPATCHED = "dispatched"
    """The calls of a turn are in the queues (run id)."""
    GATHERED = "gathered"
    """Every call of a turn is back (run id); the results are not stored."""
    ANSWER_STORED = "answer_stored"
    """A person's answer is stored; whoever has given it has not heard so."""
    PARKED = "parked"
    """The run waits for slow results, held by nobody (run id)."""

    SCHEDULE_TAKEN = "schedule_taken"
    """A schedule is due, and taken by this orchestrator (its id); nothing is decided."""
    TICK_DECIDED = "tick_decided"
    """It is written down which of its ticks begin runs (its id); none has begun."""
    TICK_BEGUN = "tick_begun"
    """The run of a tick is stored (its id); the schedule does not say so."""

    WEBHOOK_TAKEN = "webhook_taken"
    """A webhook is this orchestrator's to send (its id); its receiver has heard nothing."""
    WEBHOOK_ANSWERED = "webhook_answered"
    """Its receiver has answered (its id); what came of it is not noted."""


Hook = Callable[[Point, str], None]

_hook: Hook | None = None


def reached(point: Point, subject_id: str) -> None:
    """Say that this process is there. The hook may end the process, or hold it up."""
    if _hook is not None:
        _hook(point, subject_id)


def install(hook: Hook | None) -> None:
    """Let `hook` hear of every point that this process reaches, in place of any earlier one; None for none."""
    global _hook  # noqa: PLW0603  # one per process, like the process it ends
    _hook = hook
