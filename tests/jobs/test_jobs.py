"""Jobs in other systems: submitted once, asked about by any worker that knows the tool, ended once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from toolfleet import jobs
from toolfleet.artifacts import Artifacts, OfRun, OfTenant
from toolfleet.calls import Attempt, Failed, FailureKind, MediaPart, Returned
from toolfleet.jobs import Completion, JobCancel, StateNotTaken

NOTHING = {"job": {}, "due": None}


@pytest.mark.parametrize(("tool", "queue"), [("remote", "io"), ("unstoppable", "io"), ("remote_from_process", "cpu")])
async def test_a_submitted_call_gets_its_result_by_polls(post, system, tool, queue):
    call = await post.submitted(tool, queue=queue, system=system.url)
    assert await post.client.xlen(post.keys.queue(queue, 3)) == 0, "no worker slot is held while it waits"
    question = await system.asked()
    assert [question.job] == system.jobs
    question.answer("progress", fraction=0.5, message="half")
    (await system.asked()).answer("submitted", poll_after_s=0.01)
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    assert await post.told(call.call_id) == "spr"
    assert await post.left_of(call) == NOTHING


async def test_the_orchestrator_is_told_everything_but_the_external_id(post, system):
    call = await post.submitted("remote", system=system.url, poll_after_s=7)
    [(_, said)] = await post.client.xrange(post.keys.replies(post.reply_to))
    told = post.seal.open_result(said[b"s"], call.call_id)
    assert (told.external_id, told.poll_after_s, told.message) == ("", 7, "on its way")


async def test_a_job_says_how_it_stands(post, system, fleet):
    call = await post.submitted("remote", system=system.url)
    (await system.asked()).answer("submitted", poll_after_s=50)
    await post.released(call)
    status = await jobs.status(post.client, fleet.settings, post.seal, call.call_id)
    assert (status.record.external_id, status.record.call, status.state.polls) == (system.jobs[0], call, 1)
    assert 40 < status.next_poll_s <= 50
    assert await jobs.status(post.client, fleet.settings, post.seal, "nobody.1.0") is None


async def test_what_is_kept_of_a_job_ends_a_day_after_its_deadline(post, system):
    call = await post.submitted("remote", system=system.url, deadline_in_s=100, poll_after_s=50)
    assert 86_400 < await post.client.ttl(post.keys.job(call.call_id)) <= 86_500
    assert await post.client.ttl(post.keys.jobs("remote")) > 86_400


async def test_nobody_submits_what_nobody_could_hear_of_again(post):
    call = post.call("forgotten")
    post.send(call)
    result = await post.ended(call)
    assert (result.kind, "no poll function" in result.message) == (FailureKind.ERROR, True)


# --- polls that fail -------------------------------------------------------------------------------------------------


async def test_L2_a_poll_that_fails_once_is_repeated(post, system):
    call = await post.submitted("remote", system=system.url)
    (await system.asked()).answer(status=500)
    (await system.asked()).answer(content="after all")
    assert await post.ended(call) == Returned(content="after all")


async def test_only_failures_in_a_row_count(post, system):
    call = await post.submitted("remote", system=system.url)
    for _ in range(2):
        for _ in range(2):
            (await system.asked()).answer(status=500)
        (await system.asked()).answer("submitted", poll_after_s=0.01)
    (await system.asked()).answer(content="after all")
    assert await post.ended(call) == Returned(content="after all")


async def test_L2_polls_that_keep_failing_end_the_call_as_crashed(post, system):
    call = await post.submitted("remote", system=system.url)
    for _ in range(3):
        (await system.asked()).answer(status=503)
    result = await post.ended(call)
    assert result.kind is FailureKind.CRASHED
    assert "3 polls in a row" in result.message
    assert "503" in result.message
    assert await post.left_of(call) == NOTHING


async def test_a_poll_that_returns_nonsense_is_an_error_that_names_it(post, system):
    call = await post.submitted("remote", system=system.url)
    for _ in range(3):
        (await system.asked()).answer("nonsense", state="FINISHED?")
    result = await post.ended(call)
    assert result.kind is FailureKind.CRASHED
    assert "the poll function of remote returned dict {'state': 'FINISHED?'}; it must return" in result.message


async def test_a_poll_without_an_answer_is_given_up(post, system):
    call = await post.submitted("remote", system=system.url)
    await system.asked()  # for longer than poll_timeout_s
    (await system.asked()).answer(content="the second time")
    assert await post.ended(call) == Returned(content="the second time")


async def test_a_blocking_poll_is_never_repeated_while_it_runs(post, system):
    call = await post.submitted("unstoppable", system=system.url)
    question = await system.asked()
    # Longer than the time limit and the lease together: whoever would ask again has done so by then.
    before = await post.left_of(call)
    while (await post.left_of(call))["due"] < before["due"] + 1500:
        await post.client.xread({post.keys.replies(post.reply_to): "$"}, block=100)
    question.answer(content="slow")
    assert await post.ended(call) == Returned(content="slow")
    assert len(system.questions) == 1


async def test_as_many_blocking_polls_run_at_once_as_wait(post, system):
    calls = [await post.submitted("unstoppable", system=system.url) for _ in range(40)]
    questions = [await system.asked() for _ in calls]  # before any is answered
    assert {question.job for question in questions} == set(system.jobs)
    for question in questions:
        question.answer(content="done")
    ended = dict([await post.result() for _ in calls])
    assert ended == {call.call_id: Returned(content="done") for call in calls}


async def test_a_blocking_poll_that_leaves_has_failed_and_ends_no_loop(post, system, fleet):
    call = await post.submitted("leaves", system=system.url)
    (await system.asked()).answer("progress", fraction=0.5, message="half")
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    for worker in fleet.workers:
        assert "tool_left_the_loop" not in Path(worker.log_path).read_text()


async def test_a_failed_job_is_a_failed_call(post, system):
    call = await post.submitted("remote", system=system.url)
    (await system.asked()).answer("failed", message="no such film")
    assert await post.ended(call) == Failed(kind=FailureKind.ERROR, message="no such film")


# --- deadline and cancel ---------------------------------------------------------------------------------------------


async def test_L3_at_the_deadline_the_other_system_is_told_and_not_asked(post, system):
    call = await post.submitted("remote", system=system.url, deadline_in_s=1.0)
    (await system.asked()).answer("submitted", poll_after_s=30)
    question = await system.asked()
    assert (question.method, time.time() >= call.deadline_unix_s - 0.01) == ("DELETE", True)
    question.answer()
    result = await post.ended(call)
    assert result.kind is FailureKind.EXPIRED
    assert "told to stop" in result.message
    assert [question.method for question in system.questions] == ["GET", "DELETE"]


async def test_without_a_cancel_function_the_deadline_ends_the_call_alone(post, system):
    call = await post.submitted("unstoppable", system=system.url, deadline_in_s=0.6, poll_after_s=30)
    result = await post.ended(call)
    assert result.kind is FailureKind.EXPIRED
    assert "may go on there" in result.message
    assert system.questions == []


async def test_cancelling_tells_the_other_system(post, system, fleet):
    call = await post.submitted("remote", system=system.url, poll_after_s=30)
    asked = await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    assert asked is JobCancel.ASKED
    question = await system.asked()
    assert (question.method, question.job) == ("DELETE", system.jobs[0])
    question.answer()
    result = await post.ended(call)
    assert (result.kind, "told to stop" in result.message) == (FailureKind.CANCELLED, True)
    assert await post.left_of(call) == NOTHING


async def test_cancelling_is_repeated_when_it_fails_and_says_so_in_the_end(post, system, fleet):
    call = await post.submitted("remote", system=system.url, poll_after_s=30)
    await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    for _ in range(3):
        (await system.asked()).answer(status=502)
    result = await post.ended(call)
    assert result.kind is FailureKind.CANCELLED
    assert "telling it failed" in result.message
    assert [question.method for question in system.questions] == ["DELETE"] * 3


async def test_a_job_is_cancelled_after_the_poll_that_is_under_way(post, system, fleet):
    call = await post.submitted("remote", system=system.url)
    poll = await system.asked()
    await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    poll.answer("submitted", poll_after_s=30)
    cancel = await system.asked()
    cancel.answer()
    assert (cancel.method, (await post.ended(call)).kind) == ("DELETE", FailureKind.CANCELLED)


async def test_cancelling_without_a_function_ends_the_call_and_says_that_the_job_may_go_on(post, system, fleet):
    call = await post.submitted("unstoppable", system=system.url, poll_after_s=30)
    await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    result = await post.ended(call)
    assert (result.kind, "may go on there" in result.message) == (FailureKind.CANCELLED, True)


async def test_cancelling_a_job_that_no_worker_looks_after_ends_it_at_once(post, system, fleet):
    call = await post.submitted("called_back", system=system.url)
    asked = await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    assert (asked, (await post.ended(call)).kind) == (JobCancel.ENDED, FailureKind.CANCELLED)
    assert await post.left_of(call) == NOTHING
    again = await jobs.request_cancel(post.client, fleet.settings, post.seal, call.call_id)
    assert again is JobCancel.UNKNOWN


@pytest.mark.parametrize(
    ("tool", "kind", "started"),
    [
        ("breaks", FailureKind.IN_DOUBT, 1),
        ("breaks_harmlessly", FailureKind.ERROR, 1),
        ("declines", FailureKind.ERROR, 0),
    ],
)
async def test_a_tool_that_breaks_while_it_starts_a_job_leaves_it_in_doubt(post, system, tool, kind, started):
    call = post.call(tool, {"system": system.url})
    post.send(call, queue="io")
    failed = await post.ended(call)
    assert (failed.kind, len(system.jobs)) == (kind, started)
    if kind is FailureKind.IN_DOUBT:
        assert "the answer was lost. The job may have been started all the same" in failed.message


LONG = "".join(f"line {number}: hay\n" for number in range(40_000))


async def whole(post, fleet, call, result):
    """What a run reads of a result that was too large to be shown."""
    assert len(result.content.encode()) < fleet.settings.max_result_bytes
    assert len(LONG) > fleet.settings.max_result_bytes
    artifacts = Artifacts(post.client, fleet.settings)
    by_run, by_tenant = [
        await (await artifacts.find(result.artifact, asker)).read()
        for asker in (OfRun(call.run_id), OfTenant(call.tenant))
    ]
    assert by_run == by_tenant
    return by_run.decode()


async def test_a_large_result_of_a_poll_is_kept_whole_and_shown_in_part(post, system, fleet):
    call = await post.submitted("remote", system=system.url)
    (await system.asked()).answer(content=LONG)
    assert await whole(post, fleet, call, await post.ended(call)) == LONG


# --- completion from outside -----------------------------------------------------------------------------------------


async def test_a_callback_ends_a_job_once(post, system, fleet):
    call = await post.submitted("called_back", system=system.url)

    async def complete(call_id, content):
        return await jobs.complete(post.client, fleet.settings, post.seal, call_id, Returned(content=content))

    assert await complete("nobody.1.0", "?") is Completion.UNKNOWN
    assert await complete(call.call_id, "called back") is Completion.COMPLETED
    assert await complete(call.call_id, "twice") is Completion.ALREADY
    assert await post.ended(call) == Returned(content="called back")
    assert await post.told(call.call_id) == "sr"


async def test_a_large_result_of_a_callback_is_kept_whole_and_shown_in_part(post, system, fleet):
    call = await post.submitted("called_back", system=system.url)
    said = Returned(
        content=LONG, artifact="0" * 64, attempt=Attempt(worker="w", number=9, began_unix_s=0, ended_unix_s=0)
    )
    assert await jobs.complete(post.client, fleet.settings, post.seal, call.call_id, said) is Completion.COMPLETED
    result = await post.ended(call)
    assert await whole(post, fleet, call, result) == LONG
    assert result.attempt is None or result.attempt.worker != "w"


async def test_an_artifact_that_a_poster_names_is_not_believed(post, system, fleet):
    call = await post.submitted("called_back", system=system.url)
    said = Returned(
        content="short",
        artifact="0" * 64,
        media=(MediaPart(media_type="image/png", size_bytes=1, artifact="0" * 64),),
    )
    await jobs.complete(post.client, fleet.settings, post.seal, call.call_id, said)
    result = await post.ended(call)
    assert (result.artifact, result.media[0].artifact) == (None, None)


async def test_a_poster_sets_shared_state_only_where_the_tool_says_so(post, system, fleet):
    stranger = await post.submitted("called_back", system=system.url)
    friend = await post.submitted("called_back_by_a_friend", system=system.url)
    said = Returned(content="done", state={"paid": True})
    with pytest.raises(StateNotTaken, match=r"callback of called_back may not set shared state \(paid\)"):
        await jobs.complete(post.client, fleet.settings, post.seal, stranger.call_id, said)
    assert await jobs.complete(post.client, fleet.settings, post.seal, friend.call_id, said) is Completion.COMPLETED
    assert await post.ended(friend) == said
    done = Returned(content="done")
    assert await jobs.complete(post.client, fleet.settings, post.seal, stranger.call_id, done) is Completion.COMPLETED
    assert await post.ended(stranger) == done


async def test_of_a_callback_and_a_poll_at_the_same_time_the_first_counts(post, system, fleet):
    call = await post.submitted("remote", system=system.url)
    poll = await system.asked()
    outside = Returned(content="from outside")
    completed = await jobs.complete(post.client, fleet.settings, post.seal, call.call_id, outside)
    poll.answer(content="from the poll")
    # The same poller's next word comes after this one: by then it has been dropped.
    other = await post.submitted("remote", system=system.url)
    (await system.asked()).answer(content="next")
    assert (completed, await post.ended(call)) == (Completion.COMPLETED, outside)
    assert await post.ended(other) == Returned(content="next")
    assert await post.told(call.call_id) == "sr"


async def test_a_forged_job_is_buried_and_never_asked_about(post, system):
    call = await post.submitted("remote", system=system.url, poll_after_s=30)
    sealed = await post.client.hget(post.keys.job(call.call_id), "record")
    forged = sealed.replace(system.url.encode(), b"http://127.0.0.1:1")
    await post.client.hset(post.keys.job(call.call_id), "record", forged)
    await post.client.zadd(post.keys.jobs("remote"), {call.call_id: 0})
    letter = await post.letter()
    assert (letter["reason"], letter["id"]) == (b"job: unsigned or altered", call.call_id.encode())
    assert system.questions == []


# --- who can write to Redis, and has no secret -----------------------------------------------------------------------


async def bring_back(post, call, snapshot):
    """Put an ended job back as it was, and let the workers find it."""
    await post.client.hset(post.keys.job(call.call_id), mapping=snapshot)
    await post.client.zadd(post.keys.jobs(call.tool), {call.call_id: 1})
    async with asyncio.timeout(20):
        while await post.client.zscore(post.keys.jobs(call.tool), call.call_id) is not None:
            await post.client.xread({post.keys.replies(post.reply_to): "$"}, block=20)


@pytest.mark.parametrize("taken", ["nothing", "the result", "the mark"])
async def test_a_job_that_has_ended_is_not_brought_back(post, system, taken):
    call = await post.submitted("remote", system=system.url, deadline_in_s=2.0, poll_after_s=0.5)
    snapshot = await post.client.hgetall(post.keys.job(call.call_id))
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    await asyncio.sleep(max(0.0, call.deadline_unix_s + 0.05 - time.time()))
    if taken == "the result":
        await post.client.delete(post.keys.result(call.call_id))
    if taken == "the mark":
        assert await post.client.delete(post.keys.job_ended(call.call_id)) == 1
    await bring_back(post, call, snapshot)
    assert [question.method for question in system.questions] == ["GET"]
    assert await post.left_of(call) == NOTHING
    assert await post.told(call.call_id) == "sr"


async def test_a_job_that_a_callback_ended_is_not_brought_back(post, system, fleet):
    call = await post.submitted("remote", system=system.url, poll_after_s=30)
    snapshot = await post.client.hgetall(post.keys.job(call.call_id))
    await jobs.complete(post.client, fleet.settings, post.seal, call.call_id, Returned(content="called back"))
    await post.client.delete(post.keys.result(call.call_id))
    await bring_back(post, call, snapshot)
    assert (system.questions, await post.told(call.call_id)) == ([], "sr")
    await post.client.hset(post.keys.job(call.call_id), mapping=snapshot)
    again = await jobs.complete(post.client, fleet.settings, post.seal, call.call_id, Returned(content="twice"))
    assert (again, await post.client.exists(post.keys.result(call.call_id))) == (Completion.ALREADY, 0)
    await post.client.delete(post.keys.job(call.call_id))


async def test_what_was_sealed_to_tell_of_a_job_is_not_its_result(post, system):
    call = await post.submitted("remote", system=system.url)
    [(_, said)] = await post.client.xrange(post.keys.replies(post.reply_to))
    await post.client.set(post.keys.result(call.call_id), said[b"s"], px=60_000)
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")


async def test_no_job_of_another_type_keeps_the_others_waiting(post, system):
    before = await post.counted("refused_jobs")
    schedule = post.keys.jobs("remote")
    await post.client.set(post.keys.jobs("unstoppable"), "x")
    await post.client.set(post.keys.job("zz"), "x")
    await post.client.zadd(schedule, {"zz": 0})
    call = await post.submitted("remote", system=system.url)
    question = await system.asked()
    await post.client.hset(post.keys.job(call.call_id), mapping={"fence": "x"})
    await post.client.hdel(post.keys.job(call.call_id), "tool")
    question.answer("submitted", poll_after_s=0.05)  # its word is another claim's by now: the lease brings the job up
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    assert await post.client.zscore(schedule, "zz") is None
    assert await post.client.exists(post.keys.job("zz"), post.keys.jobs("unstoppable")) == 0
    assert await post.counted("refused_jobs") == before + 2
