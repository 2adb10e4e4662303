"""What an ended run amounts to for whoever asked for it by a call. Pure."""

from __future__ import annotations

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.orchestrator.run.limits import spent_by
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run


def result_for_parent(run: Run) -> Returned | Failed:
    """What the call that started a run comes to, now that the run has ended."""
    spent = spent_by(run)
    match run.state:
        case State.DONE:
            return Returned(content=_answer_of(run), spent=spent)
        case State.CANCELLED:
            reason = f"it was cancelled: {run.reason}{_what_stands(run)}"
            return Failed(kind=FailureKind.CANCELLED, message=reason, spent=spent)
        case _:
            reason = f"it ended without an answer: {run.reason}{_what_stands(run)}"
            return Failed(kind=FailureKind.ERROR, message=reason, spent=spent)


def _answer_of(run: Run) -> str:
    """The answer, with what it lacks where a caller would else take it for the whole."""
    said = run.answer or ""
    if run.incomplete is None:
        return said
    return f"{said}\n[{run.shortcoming}]" if said.strip() else f"[{run.shortcoming}]"


def _what_stands(run: Run) -> str:
    """That its calls may have had effects, if any of them was made."""
    made = sum(isinstance(call.result, Returned) or call.deadline_unix_s is not None for call in run.calls)
    return f"; {made} of its calls may have had their effects, which stand" if made else ""
