"""A job belongs to no worker: whichever dies, freezes or restarts, another goes on asking, and one result counts."""

from __future__ import annotations

import asyncio
import signal

import pytest
from processes import alive, kill, replenish, worker_of

from toolfleet.calls import FailureKind, Returned


@pytest.fixture(autouse=True)
def two_workers(fleet):
    replenish(fleet, io=2)


async def test_a_job_outlives_the_worker_that_submitted_it(fleet, post, system):
    call = await post.submitted("remote", system=system.url, poll_after_s=0.5)
    submitter = worker_of(fleet, system.starter)
    kill(submitter)
    question = await system.asked()
    assert question.pid != submitter.pid
    question.answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    assert len(system.jobs) == 1


async def test_a_worker_killed_during_a_poll_is_replaced(fleet, post, system):
    call = await post.submitted("remote", system=system.url)
    first = await system.asked()
    kill(worker_of(fleet, first.pid))
    second = await system.asked()
    assert second.pid != first.pid
    second.answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    assert await post.told(call.call_id) == "sr"


async def test_a_worker_asked_to_stop_during_a_poll_gives_the_job_away(fleet, post, system):
    call = await post.submitted("remote", system=system.url)
    first = await system.asked()
    stopping = worker_of(fleet, first.pid)
    stopping.ask_to_stop()
    second = await system.asked()
    while second.pid == first.pid:  # it may still be at it when the first poll has taken too long
        second = await system.asked()
    second.answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    stopping.process.wait(20)


async def test_L7_the_late_answer_of_a_frozen_worker_is_dropped(fleet, post, system):
    call = await post.submitted("remote", system=system.url)
    first = await system.asked()
    frozen = worker_of(fleet, first.pid)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        second = await system.asked()
        first.answer(content="the frozen one's")
        second.answer(content="the other's")
        assert await post.ended(call) == Returned(content="the other's")
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    # Once it asks about another job it has said what it had to say.
    pids = set()
    while frozen.pid not in pids:
        other = await post.submitted("remote", system=system.url)
        question = await system.asked()
        pids.add(question.pid)
        question.answer(content="next")
        assert await post.ended(other) == Returned(content="next")
    assert await post.told(call.call_id) == "sr"


async def test_a_job_outlives_all_workers(fleet, post, system):
    call = await post.submitted("remote", system=system.url)
    (await system.asked()).answer("submitted", poll_after_s=0.2)
    await post.released(call)
    for worker in alive(fleet, "io"):
        kill(worker)
    replenish(fleet, io=1)
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")


async def test_a_deadline_that_passed_while_nobody_lived_is_kept_by_the_next_worker(fleet, post, system):
    call = await post.submitted("unstoppable", system=system.url, poll_after_s=0.4, deadline_in_s=0.6)
    for worker in alive(fleet, "io"):
        kill(worker)
    await asyncio.sleep(0.7)
    replenish(fleet, io=1)
    assert (await post.ended(call)).kind is FailureKind.EXPIRED
    assert system.questions == []
