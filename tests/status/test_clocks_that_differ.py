"""Where two clocks disagree, no length of time that is told is below zero."""

import time

from toolfleet.calls import Attempt, JobRecord, ToolCall
from toolfleet.orchestrator.doors.cli.wording import span
from toolfleet.orchestrator.status.call_reader import AskedCall, HandleRecord
from toolfleet.orchestrator.status.handles import _age_s
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import attempt_text
from toolfleet.workers.jobs.schedule import _attempt as attempt_of_job

AHEAD_S = 300.0


def test_a_handle_from_a_sender_whose_clock_is_ahead_is_new():
    ahead = time.time() + AHEAD_S
    record = HandleRecord(call_id="c", run_id="r", tool="t", deadline_unix_s=ahead, submitted_unix_s=ahead)
    assert _age_s(AskedCall("c", record=record)) == 0.0


def test_an_attempt_does_not_end_before_it_began_when_the_clock_is_set_back():
    came_unix_s = round(time.time() + AHEAD_S, 4)
    attempt = Attempt.model_validate_json(attempt_text(Delivery("c", "t", None, None, came_unix_s=came_unix_s)))
    assert attempt.ended_unix_s == attempt.began_unix_s == came_unix_s


def test_a_job_does_not_end_before_it_began_when_another_worker_ends_it():
    call = ToolCall(call_id="r.1.0", run_id="r", tool="t", arguments="{}", deadline_unix_s=9e9, reply_to="o")
    job = JobRecord(call=call, external_id="7", poll_after_s=1, submitted_unix_s=1000.0, polled=True, cancellable=False)
    attempt = attempt_of_job(job, 1000.0 - AHEAD_S)
    assert attempt.ended_unix_s == attempt.began_unix_s == 1000.0


def test_a_length_of_time_for_people_is_not_below_zero():
    assert span(-AHEAD_S) == "0 ms"
