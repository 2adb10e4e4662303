"""What follows from a job's beginning and from asking about it: decisions, no Redis.

A job is asked about ever more rarely while it goes on, and ends with an answer, at its deadline, when it was cancelled,
or after too many polls in a row that failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from toolfleet.calls import Failed, FailureKind, JobRecord, Progress, Returned, Submitted, ToolCall
from toolfleet.jobs import JobState, ends_unix_ms, goes_on
from toolfleet.keys import RESULT_TTL_S
from toolfleet.settings import Settings
from toolfleet.strict_json import encodable
from toolfleet.tool import Tool
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.tool.results import failure_of, record_of

GROWTH: Final = 1.5
"""How much longer each further poll waits."""

MAX_CANCELS: Final = 3
"""Attempts to cancel a job; then its call ends all the same."""


class Deed(StrEnum):
    """What is done about a job that is due."""

    POLL = "poll"
    """Ask the other system how the job stands."""
    CANCEL = "cancel"
    """Tell the other system to stop, because the call was cancelled."""
    EXPIRE = "expire"
    """Cancel it because its deadline has passed."""
    GIVE_UP = "give_up"
    """Only say that it has expired: it should be forgotten by now, so somebody may have brought it back."""


class Claimed(NamedTuple):
    """A job that this worker alone may deal with for now."""

    fence: int
    record: JobRecord
    state: JobState
    is_cancelled: bool
    now_unix_s: float

    @property
    def deed(self) -> Deed:
        """A wish to cancel goes before the deadline, the deadline before another poll, the end of all before that."""
        if self.now_unix_s * 1000 >= ends_unix_ms(self.record.call.deadline_unix_s):
            return Deed.GIVE_UP
        if self.is_cancelled:
            return Deed.CANCEL
        return Deed.EXPIRE if self.now_unix_s >= self.record.call.deadline_unix_s else Deed.POLL


class Wait(NamedTuple):
    """Ask again after a while; at once if it has been cancelled meanwhile and `heeds_cancel`."""

    delay_s: float
    state: JobState
    heeds_cancel: bool = True


class End(NamedTuple):
    """The call has its result."""

    result: Returned | Failed


Verdict = Wait | End


class NotAnAnswer(TypeError):
    """A poll function returned something else than it may."""


def job_of(delivery: Delivery, call: ToolCall, tool: Tool[..., Any], submitted: Submitted) -> JobRecord | Failed:
    """The job that a tool submitted, or why it is none: then nobody could ever learn how it ended."""
    polled, cancellable = tool.hooks.get("poll") is not None, tool.hooks.get("cancel") is not None
    if not polled and not submitted.external_id:
        message = (
            f"{call.tool} returned Submitted without an external_id and has no poll function, so nobody could learn "
            "how its job ends. The job may have been started."
        )
        return Failed(kind=FailureKind.ERROR, message=message)
    return JobRecord(
        call=call,
        external_id=submitted.external_id,
        poll_after_s=submitted.poll_after_s,
        submitted_unix_s=time.time(),
        attempt=delivery.deliveries,
        message=submitted.message,
        polled=polled,
        cancellable=cancellable,
        takes_state=tool.takes_state,
        spent=submitted.spent,
    )


def after_answer(job: Claimed, answer: object, settings: Settings) -> Verdict:
    """What follows from what the poll function returned. Raises NotAnAnswer."""
    match answer:
        case Returned():
            result = record_of(answer)
            return End(result) if not isinstance(result, Submitted) else _wait(job, result, settings)
        case Failed(kind=kind, message=message):
            return End(Failed(kind=kind, message=encodable(message)))
        case Progress() | Submitted():
            return _wait(job, answer, settings)
        case _:
            raise NotAnAnswer(
                f"the poll function of {job.record.call.tool} returned {type(answer).__name__} {answer!r:.100}; "
                "it must return Returned or Failed when the job has ended, Progress or Submitted while it goes on"
            )


def after_error(job: Claimed, error: BaseException, settings: Settings, jitter: Callable[[], float]) -> Verdict:
    """What follows when the poll function raised, took too long or returned nonsense. `jitter` is from 0 to 1."""
    errors = job.state.errors + 1
    if errors < settings.max_poll_errors:
        state = job.state.model_copy(update={"polls": job.state.polls + 1, "errors": errors})
        return Wait(_retry_s(errors, settings, jitter), state)
    tool, polls = job.record.call.tool, "1 poll" if errors == 1 else f"{errors} polls in a row"
    message = (
        f"{tool} crashed: asking for its job failed in {polls}, the last time with: {failure_of(error).message} "
        "The job itself may have ended or may go on."
    )
    return End(Failed(kind=FailureKind.CRASHED, message=message))


def after_cancelling(job: Claimed) -> End:
    """The other system was told to stop."""
    return _called_off(job, "The system that does the work was told to stop.")


def without_cancelling(job: Claimed) -> End:
    """There is no way to tell the other system."""
    return _called_off(job, goes_on(None))


def given_up(job: Claimed) -> End:
    """It is too late to tell anybody but the caller."""
    message = (
        f"the job of {job.record.call.tool} did not end before its deadline. That is more than "
        f"{RESULT_TTL_S // 3600} hours ago, so the system that does the work was not told to stop and may go on."
    )
    return End(Failed(kind=FailureKind.EXPIRED, message=message))


def after_failed_cancelling(
    job: Claimed, error: BaseException, settings: Settings, jitter: Callable[[], float]
) -> Verdict:
    """The other system could not be told this time."""
    cancels = job.state.cancels + 1
    if cancels >= MAX_CANCELS:
        return _called_off(job, goes_on(failure_of(error).message))
    state = job.state.model_copy(update={"cancels": cancels})
    return Wait(_retry_s(cancels, settings, jitter), state, heeds_cancel=False)


def _called_off(job: Claimed, what_of_the_work: str) -> End:
    tool = job.record.call.tool
    if job.deed is Deed.EXPIRE:
        kind, how = FailureKind.EXPIRED, f"the job of {tool} did not end before its deadline."
    else:
        kind, how = FailureKind.CANCELLED, f"{tool} was cancelled."
    return End(Failed(kind=kind, message=f"{how} {what_of_the_work}"))


def _wait(job: Claimed, answer: Progress | Submitted, settings: Settings) -> Wait:
    longest_s = max(settings.max_poll_wait_s, job.record.poll_after_s)
    wait_s = min(job.state.wait_s * GROWTH, longest_s)
    if isinstance(answer, Submitted) and "poll_after_s" in answer.model_fields_set:
        wait_s = answer.poll_after_s
    return Wait(wait_s, JobState(wait_s=wait_s, polls=job.state.polls + 1))


def _retry_s(failures: int, settings: Settings, jitter: Callable[[], float]) -> float:
    # Half of it at random, so that the jobs of a system that was down do not all come back at once.
    return min(settings.poll_retry_s * 2.0 ** (failures - 1), settings.max_poll_wait_s) * (0.5 + 0.5 * jitter())
