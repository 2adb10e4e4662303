"""Submitting is one step, fenced as settling is, and whatever is said of its process afterwards is too late."""

from __future__ import annotations

import time

import pytest

from toolfleet.calls import Failed, FailureKind, JobRecord, Returned, ToolCall
from toolfleet.connections import connect_async
from toolfleet.jobs import Completion, complete
from toolfleet.streams import GROUP
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Outcome, Settlement, Settler
from toolfleet.workers.jobs.schedule import submit

CANCELLED = Failed(kind=FailureKind.CANCELLED, message="too late")


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
async def delivery(settings, client):
    """A message that worker `w` holds."""
    stream = settings.keys.queue("io", 3)
    await client.xgroup_create(stream, GROUP, mkstream=True)
    entry_id = (await client.xadd(stream, {"b": "a call"})).decode()
    await client.xreadgroup(GROUP, "w", {stream: ">"})
    return Delivery("r.1.0", "encode", None, None, stream=stream, entry_id=entry_id, consumer="w")


@pytest.fixture
def job():
    call = ToolCall(
        call_id="r.1.0", run_id="r", tool="encode", arguments="{}", deadline_unix_s=time.time() + 60, reply_to="o"
    )
    return JobRecord(
        call=call, external_id="7", poll_after_s=5, submitted_unix_s=time.time(), polled=True, cancellable=False
    )


async def test_a_submitted_job_takes_the_place_of_the_message(settings, client, delivery, job):
    assert await submit(client, settings, Seal(settings), delivery, job) is Outcome.SETTLED
    assert await client.xlen(delivery.stream) == 0
    assert await client.zscore(settings.keys.jobs("encode"), "r.1.0") is not None


async def test_submitting_again_after_a_lost_reply_changes_nothing(settings, client, delivery, job):
    seal = Seal(settings)
    await submit(client, settings, seal, delivery, job)
    await client.hset(settings.keys.job("r.1.0"), "fence", 3)
    assert await submit(client, settings, seal, delivery, job) is Outcome.ALREADY
    assert await client.hget(settings.keys.job("r.1.0"), "fence") == b"3"
    assert await client.xlen(settings.keys.replies("o")) == 1


async def test_submitting_again_after_a_job_has_ended_and_been_fetched_begins_no_other(settings, client, delivery, job):
    seal = Seal(settings)
    await submit(client, settings, seal, delivery, job)
    await complete(client, settings, seal, "r.1.0", Returned(content="done"))
    await client.delete(settings.keys.result("r.1.0"))
    assert await submit(client, settings, seal, delivery, job) is Outcome.ALREADY
    assert not await client.exists(settings.keys.job("r.1.0"))
    another = job.model_copy(update={"attempt": 2})
    assert await submit(client, settings, seal, delivery, another) is Outcome.SETTLED


async def test_what_is_no_job_gives_way_to_one(settings, client, delivery, job):
    await client.set(settings.keys.job("r.1.0"), "x")
    assert await submit(client, settings, Seal(settings), delivery, job) is Outcome.SETTLED


async def test_a_worker_that_lost_its_message_submits_nothing(settings, client, delivery, job):
    await client.xclaim(delivery.stream, GROUP, "another", 0, [delivery.entry_id])
    assert await submit(client, settings, Seal(settings), delivery, job) is Outcome.LATE
    assert not await client.exists(settings.keys.job("r.1.0"), settings.keys.jobs("encode"))
    assert await client.xlen(delivery.stream) == 1


async def test_a_call_that_was_cancelled_while_it_submitted_is_due_at_once(settings, client, delivery, job):
    await client.set(settings.keys.cancelled("r.1.0"), "1")
    await submit(client, settings, Seal(settings), delivery, job)
    due_ms = await client.zscore(settings.keys.jobs("encode"), "r.1.0")
    assert due_ms < (job.submitted_unix_s + job.poll_after_s) * 1000 - 1000


async def test_what_is_said_of_a_process_after_it_submitted_ends_nothing(settings, client, delivery, job):
    seal = Seal(settings)
    await submit(client, settings, seal, delivery, job)
    settlement = Settlement.of(delivery, job.call, CANCELLED, seal)
    assert await Settler(client, settings.keys, Seal(settings)).settle(settlement) is Outcome.ALREADY
    assert not await client.exists(settings.keys.result("r.1.0"))
    assert await client.exists(settings.keys.job("r.1.0"))


async def test_a_result_that_nobody_has_sealed_keeps_no_job_and_no_jobs_end_away(settings, client, delivery, job):
    seal, result, forged = Seal(settings), settings.keys.result("r.1.0"), "0" * 64 + "{}"
    await client.set(result, forged)
    assert await submit(client, settings, seal, delivery, job) is Outcome.SETTLED
    await client.set(result, forged)
    assert await complete(client, settings, seal, "r.1.0", Returned(content="encoded")) is Completion.COMPLETED
    assert seal.open_result(await client.get(result), "r.1.0") == Returned(content="encoded")
    assert await client.hget(settings.keys.counters(), "forged_results") == b"2"
