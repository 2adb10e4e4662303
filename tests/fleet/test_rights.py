"""The users of deploy/redis-acl.example: enough for all that a fleet does, and for a worker not much more."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import redis
from conversations import rehearsed
from fleets import HERE
from guarded import WORKER, GuardedFleet
from processes import alive, ask_to_stop, replenish
from test_conformance import *  # noqa: F403  # the whole of it, with the fleet below

from toolfleet.broker import celery_app
from toolfleet.calls import Submitted
from toolfleet.orchestrator import Orchestrator

KINDS = {
    "asyncio": ("--kind", "asyncio", "--concurrency", "8", "--events"),
    "prefork": ("--kind", "prefork", "--concurrency", "2", "--events"),
}


@pytest.fixture(scope="module", params=KINDS)
def fleet(request):
    """Workers and orchestrators with the rights of the example. In the end nobody was refused anything."""
    options = (*KINDS[request.param], "--queues", "io,cpu,long")
    with GuardedFleet(
        ["fleet_tools", "rights_tools"], pools={"io": 2}, environment=HERE, worker_options=options
    ) as running:
        yield running
        for worker in alive(running, "io"):
            ask_to_stop(worker)
            assert worker.process.wait(30) == 0
            assert "NOPERM" not in worker.log_tail()
        assert running.refused() == set()


async def test_a_call_takes_no_longer_than_without_rights(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await orchestrator.call("echo", {"value": 1})
        for tool, arguments in (("echo", {"value": 1}), ("add", {"a": 1, "b": 1}), ("wordy", {"characters": 200_000})):
            took_s = []
            for _ in range(3):  # the machine may have been busy
                began = time.monotonic()
                await orchestrator.call(tool, arguments)
                took_s.append(time.monotonic() - began)
            assert min(took_s) < 1.5, (tool, took_s)


async def test_a_checkpoint_outlives_its_worker(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("dies_after_a_checkpoint", {})
    assert json.loads(result.content) == {"at": 7}
    replenish(fleet, io=2)


async def test_jobs_kept_results_handles_cancels_and_runs_need_no_more_rights(fleet):
    async with rehearsed(fleet.settings) as orchestrator:
        assert (await orchestrator.call("cached", {"value": 5})).content == "5"
        submitted = await orchestrator.run("call elsewhere {}", slow="wait")
        assert [call.result.content for call in submitted.calls] == ["job-1 is done"]
        run = await orchestrator.run('call add {"a": 1, "b": 2} then call wordy {"characters": 200000}')
        assert run.state == "done"
        slow = await orchestrator.call("long_job", {"steps": 2000}, patience_s=0)
        assert isinstance(slow, Submitted)
        assert (await orchestrator.cancel_task(slow.handle)).state in ("cancelled", "running")
        run_id = await orchestrator.start('call echo {"value": "y"}')
        assert "y" in (await orchestrator.wait(run_id)).answer
        assert await orchestrator.delete(run_id)
    inspect = celery_app(fleet.settings).control.inspect(timeout=2)
    assert len(await asyncio.to_thread(inspect.ping)) == 2


FORBIDDEN = {
    "a_conversation": ("XADD", "toolfleet:run:r1", "*", "e", "x"),
    "where_a_run_stands": ("HSET", "toolfleet:head:r1", "owner", "x"),
    "the_list_of_runs": ("ZADD", "toolfleet:runs", 1, "r1"),
    "whose_runs_these_are": ("SADD", "toolfleet:owned:o1", "r1"),
    "runs_to_be_adopted": ("SADD", "toolfleet:unowned:m", "r1"),
    "an_orchestrators_lease": ("SET", "toolfleet:orchestrator:o1", "x"),
    "the_list_of_orchestrators": ("ZADD", "toolfleet:orchestrators", 1, "x"),
    "an_orchestrators_proofs": ("SET", "toolfleet:orchestrator-proofs:o1", "[]"),
    "a_handle": ("SET", "toolfleet:handle:h", "x"),
    "arguments_with_secrets": ("GET", "toolfleet:arguments:r1.1.0"),
    "an_api_key": ("HSET", "toolfleet:api-keys", "d", "x"),
    "the_api_keys": ("HGETALL", "toolfleet:api-keys"),
    "a_rate": ("HSET", "toolfleet:rate:k", "tokens", 9),
    "an_idempotent_answer": ("SET", "toolfleet:idempotent:d", "x"),
    "a_conversation_of_an_assistant": ("SET", "toolfleet:conversation:d", "r1"),
    "another_fleet": ("SET", "other:claim:x", "1"),
    "another_fleets_control": ("PUBLISH", "/0:other.celery.pidbox", "x"),
}


@pytest.mark.parametrize("command", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_worker_may_not_touch(fleet, command):
    with redis.Redis.from_url(fleet._url_of(WORKER)) as worker, pytest.raises(redis.exceptions.NoPermissionError):
        worker.execute_command(*command)
    fleet.admin.execute_command("ACL", "LOG", "RESET")
