"""What follows from asking about a job, without asking: waits, limits and words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from toolfleet.calls import Failed, FailureKind, JobRecord, Progress, Returned, Submitted, ToolCall
from toolfleet.jobs import JobState
from toolfleet.keys import RESULT_TTL_S
from toolfleet.settings import Settings
from toolfleet.workers.jobs.decide import (
    Claimed,
    Deed,
    NotAnAnswer,
    Wait,
    after_answer,
    after_error,
    after_failed_cancelling,
    given_up,
)

DEADLINE = 1_000.0
SETTINGS = Settings(max_poll_errors=3, poll_retry_s=2, max_poll_wait_s=60)
AGAIN = Submitted()
"""The job goes on; its poll function does not say for how long."""


def claimed(*, poll_after_s=4.0, now=10.0, is_cancelled=False, **state):
    call = ToolCall(call_id="r.1.0", run_id="r", tool="encode", arguments="{}", deadline_unix_s=DEADLINE, reply_to="o")
    record = JobRecord(
        call=call, external_id="7", poll_after_s=poll_after_s, submitted_unix_s=0, polled=True, cancellable=True
    )
    return Claimed(1, record, JobState(**{"wait_s": poll_after_s} | state), is_cancelled, now)


def waits(first_s, answers):
    job = claimed(poll_after_s=first_s)
    for answer in answers:
        verdict = after_answer(job, answer, SETTINGS)
        yield verdict.delay_s
        job = job._replace(state=verdict.state)


def test_each_further_poll_waits_half_as_long_again_up_to_the_limit():
    assert list(waits(4, [AGAIN] * 9)) == pytest.approx([6, 9, 13.5, 20.25, 30.375, 45.5625, 60, 60, 60])


def test_a_tool_that_wants_longer_waits_than_the_limit_gets_them():
    assert list(waits(600, [AGAIN] * 2)) == [600, 600]


def test_a_poll_that_says_when_to_ask_again_is_obeyed_and_the_wait_grows_from_there():
    assert list(waits(40, [Submitted(poll_after_s=2), AGAIN, Progress(fraction=0.5)])) == [2, 3, 4.5]


def test_a_good_poll_forgets_the_failures_before_it():
    assert after_answer(claimed(errors=2, polls=5), AGAIN, SETTINGS).state == JobState(wait_s=6, polls=6)


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, [1, 2]), (1.0, [2, 4])])
def test_failures_wait_twice_as_long_each_time_and_half_of_it_is_chance(jitter, expected):
    delays = [after_error(claimed(errors=n), OSError(), SETTINGS, lambda: jitter).delay_s for n in range(2)]
    assert delays == expected


def test_the_last_allowed_failure_ends_the_call_with_the_last_error():
    result = after_error(claimed(errors=2), OSError("refused"), SETTINGS, lambda: 0.0).result
    assert (result.kind, "refused" in result.message) == (FailureKind.CRASHED, True)


@pytest.mark.parametrize("nonsense", [None, "done", {"state": "done"}, 0.5, True, Returned])
def test_what_is_no_answer_is_refused_with_the_tools_name(nonsense):
    with pytest.raises(NotAnAnswer, match="the poll function of encode returned"):
        after_answer(claimed(), nonsense, SETTINGS)


def test_the_end_of_a_job_is_made_encodable_as_any_result():
    failed = after_answer(claimed(), Failed(kind=FailureKind.ERROR, message="bad \ud800"), SETTINGS).result
    assert failed.message == "bad \ufffd"


@pytest.mark.parametrize(
    ("job", "deed"),
    [
        (claimed(), Deed.POLL),
        (claimed(now=DEADLINE - 0.001), Deed.POLL),
        (claimed(now=DEADLINE), Deed.EXPIRE),
        (claimed(is_cancelled=True), Deed.CANCEL),
        (claimed(is_cancelled=True, now=DEADLINE), Deed.CANCEL),
    ],
)
def test_a_wish_to_cancel_goes_before_the_deadline_and_the_deadline_before_a_poll(job, deed):
    assert job.deed is deed


def test_a_failed_attempt_to_cancel_is_repeated_after_a_wait_and_given_up_in_the_end():
    again = after_failed_cancelling(claimed(is_cancelled=True), OSError(), SETTINGS, lambda: 1.0)
    assert again == Wait(2, JobState(wait_s=4, cancels=1), heeds_cancel=False)
    end = after_failed_cancelling(claimed(is_cancelled=True, cancels=2), OSError("gone"), SETTINGS, lambda: 1.0)
    assert "telling it failed: gone" in end.result.message


def test_a_lease_that_a_poll_could_outlive_is_refused():
    with pytest.raises(ValidationError, match="poll_lease_s"):
        Settings(poll_timeout_s=30, poll_lease_s=30)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_nobody_is_told_to_stop_once_a_job_should_be_forgotten(is_cancelled):
    kept_until = DEADLINE + RESULT_TTL_S
    assert claimed(now=kept_until - 1, is_cancelled=is_cancelled).deed in {Deed.CANCEL, Deed.EXPIRE}
    job = claimed(now=kept_until, is_cancelled=is_cancelled)
    failed = given_up(job).result
    assert (job.deed, failed.kind) == (Deed.GIVE_UP, FailureKind.EXPIRED)
    assert "more than 24 hours ago, so the system that does the work was not told" in failed.message
