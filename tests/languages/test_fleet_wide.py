"""What holds in the whole fleet, of workers in other languages: limits, calls that wait, jobs elsewhere, state."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from toolfleet.calls import Returned
from toolfleet.connections import connect_async
from toolfleet.jobs import Completion, complete, status
from toolfleet.wire import Seal

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet(language):
    with language.fleet_of(public_url="https://fleet.example") as running:
        yield running


async def test_X2_declared_limits_of_the_fleet_hold(begin, stage):
    answer = begin(*[("narrow", {"stage": stage.path})] * 3)
    for n in range(3):
        actor = await stage.enters()
        assert len(stage.actors) == n + 1
        actor.returns(n)
    assert sorted(await answer) == ["0", "1", "2"]


async def test_X2_a_tool_that_wants_to_be_asked_later_is_and_that_is_no_attempt(begin, stage):
    answer = begin(("narrow", {"stage": stage.path}), ("narrow", {"stage": stage.path}))
    first = await stage.enters()
    first._direct({"retry_after": 0.3})
    again = await stage.enters()  # nobody with the same limit goes before it
    assert (again.call_id, again.seen["attempt"]) == (first.call_id, 1)
    again.returns("in the end")
    (await stage.enters())._direct({"retry_after": 86_000})  # beyond its deadline
    kept, told = sorted(await answer, key=len)
    assert kept == "in the end"
    assert told == "narrow is rate limited, try again in 86000 s, which is after the call's deadline."


async def test_X2_a_job_elsewhere_takes_the_place_of_its_call_until_it_is_ended_by_its_address(fleet, orchestrator):
    seal = Seal(fleet.settings)
    async with connect_async(fleet.settings) as client, asyncio.timeout(WAIT_S):
        called = await orchestrator.call("elsewhere", {"name": "job-7"}, patience_s=0)
        call_id = (await orchestrator.task(called.handle)).call_id
        while (job := await status(client, fleet.settings, seal, call_id)) is None:
            await asyncio.sleep(0.02)
        assert (job.record.external_id, job.record.polled, job.next_poll_s) == ("job-7", False, None)
        address = urlsplit(job.record.message)
        assert address._replace(query="").geturl() == f"https://fleet.example/v1/handles/{call_id}/complete"
        said = parse_qs(address.query)
        seal.check_callback(call_id, int(said["expires"][0]), said["signature"][0])
        ended = await complete(client, fleet.settings, seal, call_id, Returned(content="there"))
        assert ended is Completion.COMPLETED
        assert (await orchestrator.task(called.handle, wait_s=WAIT_S)).result.content == "there"


async def test_X2_a_tool_changes_the_state_of_its_run_and_tells_the_caller_more(orchestrator):
    result = await orchestrator.call("update", {"state": {"seen": 1}, "attributes": {"cost": 2}})
    assert (result.content, result.state, result.attributes) == ("updated", {"seen": 1}, {"cost": 2})
