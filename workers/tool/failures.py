"""What the model reads of a call that ended without its tool saying how. Pure."""

from __future__ import annotations

from toolfleet.calls import Effect, Failed, FailureKind
from toolfleet.errors import RetryAfter


def doubt(effect: Effect) -> str:
    """What is added where a tool was stopped while it may have run; nothing where a repeat does no harm."""
    return "" if effect.repeatable else " Its effect may or may not have happened."


def in_doubt(tool: str) -> Failed:
    """The worker was lost when the tool may already have started."""
    return Failed(
        kind=FailureKind.IN_DOUBT,
        message=f"{tool} was interrupted: its effect may or may not have happened, and it was not run again. "
        "Check before you repeat it.",
    )


def submit_in_doubt(tool: str, reason: str) -> Failed:
    """A tool that starts jobs in another system raised, perhaps after the other system had heard of the job."""
    return Failed(
        kind=FailureKind.IN_DOUBT,
        message=f"{tool} failed while it started a job in another system: {reason.rstrip('.')}. The job may have been "
        "started all the same, and its result will not come. Check before you repeat it.",
    )


def still_in_doubt(tool: str, reason: str) -> Failed:
    """The worker was lost as in `in_doubt`, and the tool's own reconcile function could not tell either."""
    return Failed(
        kind=FailureKind.IN_DOUBT,
        message=f"{tool} was interrupted: its effect may or may not have happened, and it was not run again, because "
        f"its reconcile function {reason}. Check before you repeat it.",
    )


def blocked(tool: str, limit_s: float, effect: Effect) -> Failed:
    """The tool kept its worker's event loop to itself, and was ended with the worker."""
    message = f"{tool} blocked its worker for {limit_s:g} s and was ended with it.{doubt(effect)}"
    return Failed(kind=FailureKind.TIMED_OUT, message=message)


def cancelled_unstarted(tool: str) -> Failed:
    """The call was cancelled before it started."""
    return Failed(kind=FailureKind.CANCELLED, message=f"{tool} was cancelled before it started.")


def crashed(tool: str, attempts: int) -> Failed:
    """Every worker that tried to run the call was lost."""
    return Failed(
        kind=FailureKind.CRASHED,
        message=f"{tool} crashed: the worker was lost in each of {attempts} attempts. Do not repeat the same call.",
    )


def expired(tool: str) -> Failed:
    """The deadline passed before the call began."""
    return Failed(kind=FailureKind.EXPIRED, message=f"{tool} did not start before its deadline; it has had no effect.")


def unread(tool: str, version: int) -> Failed:
    """Nobody reads the version of the wire that the call was sent in."""
    return Failed(
        kind=FailureKind.UNKNOWN_TOOL,
        message=f"{tool} was called in version {version} of the contract, which no live worker reads; it has had no "
        "effect.",
    )


def limited(tool: str, error: RetryAfter, why_now: str = "") -> Failed:
    """The tool wants to be asked later, and the model is to know."""
    return Failed(kind=FailureKind.LIMIT, message=f"{tool} is {error}{why_now}.")


def ended_from_outside(tool: str, kind: FailureKind, effect: Effect) -> Failed:
    """Its call was ended by who runs it: for the time that it took, because nobody wants it, or with its process."""
    match kind:
        case FailureKind.IN_DOUBT:
            return in_doubt(tool)
        case FailureKind.TIMED_OUT:
            said = f"{tool} took longer than its limit; its process was killed.{doubt(effect)}"
            return Failed(kind=kind, message=said)
        case _:
            return Failed(kind=kind, message=f"{tool} was cancelled.{doubt(effect)}")
