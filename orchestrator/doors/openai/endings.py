"""What a run without an answer is answered with: whose fault it is, and whether the request may be made again.

A run that has sent calls must not be repeated by a client that means well. Some obey `x-should-retry`, the others go by
the status alone, so it is one that none of them takes for a passing fault. Pure.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

from toolfleet.orchestrator.doors.http.problems import AGAIN, NOT_AGAIN, RETRY_AFTER_S, Problem
from toolfleet.orchestrator.models.faults import OUT_OF_QUOTA
from toolfleet.orchestrator.run.fault import Fault, FaultKind
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

OVERLOADED: Final = frozenset({503, 529})
"""What providers answer when they have no room."""

OURS: Final = frozenset({401, 403, 407})
"""What a provider answers to the key of this server, of which its callers are told nothing."""


def must_have_worked(run: Run) -> None:
    """Raise Problem for a run without an answer."""
    if run.state is not State.DONE:
        raise problem_of_run(run)


def problem_of_run(run: Run) -> Problem:
    """Return the answer to a request whose run has no answer."""
    if run.state is State.CANCELLED:
        return _dead_end(run, f"run {run.run_id} was cancelled: {run.reason}")
    fault = run.fault
    if fault is not None and fault.kind is FaultKind.REFUSED and (problem := _refusal(run, fault)) is not None:
        return problem
    if run.has_sent_calls:
        return _dead_end(run, f"run {run.run_id} failed after it had sent calls, so do not just repeat it: {_why(run)}")
    if fault is None or fault.kind is FaultKind.REFUSED:
        detail = f"run {run.run_id} failed: {_why(run)}"
        return Problem(HTTPStatus.BAD_GATEWAY, detail, code="run-failed", headers=NOT_AGAIN)
    return _passing(run, fault)


def _dead_end(run: Run, detail: str) -> Problem:
    return Problem(HTTPStatus.FAILED_DEPENDENCY, detail, code=f"run-{run.state}", headers=NOT_AGAIN)


def _refusal(run: Run, fault: Fault) -> Problem | None:
    """Return what a provider has refused, where that is told as it was said: the request, or the model's name."""
    if fault.code in OUT_OF_QUOTA and not run.has_sent_calls:
        detail = f"the account of this server at its model's provider has no quota left (run {run.run_id})"
        return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, code=fault.code, headers=NOT_AGAIN)
    if fault.status is None or fault.status in OURS or fault.code in OUT_OF_QUOTA:
        return None
    said = fault.message or f"the model's provider answered {fault.status}"
    if fault.status == HTTPStatus.NOT_FOUND:
        detail = f"the provider of the model {run.model} does not have it: {said}"
        return Problem(HTTPStatus.NOT_FOUND, detail, code="model-not-found", headers=NOT_AGAIN, param="model")
    param = {"param": fault.param} if fault.param else {}
    return Problem(HTTPStatus.BAD_REQUEST, said, code=fault.code or "model-refused", headers=NOT_AGAIN, **param)


def _passing(run: Run, fault: Fault) -> Problem:
    """Return what may be otherwise in a moment; nothing has been done."""
    detail = f"run {run.run_id} failed, and had no effect: {run.reason}"
    wait_s = RETRY_AFTER_S if fault.retry_after_s is None else max(1, math.ceil(fault.retry_after_s))
    later = {**AGAIN, "retry-after": str(wait_s)}
    if fault.status == HTTPStatus.TOO_MANY_REQUESTS:
        return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, code="model-rate-limited", headers=later)
    if fault.status in OVERLOADED:
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, code="model-overloaded", headers=later)
    return Problem(HTTPStatus.BAD_GATEWAY, detail, code="model-unreachable", headers=AGAIN)


def _why(run: Run) -> str:
    """Return why a run has failed, without what its provider says of this server's key."""
    if run.fault is not None and run.fault.status in OURS:
        return "the model's provider refused the key of this server; whoever runs it finds more in its log"
    return run.reason or "no reason is known"
