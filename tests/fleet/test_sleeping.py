"""Tools that sleep: with a checkpoint no worker has them meanwhile, and each sleep is slept once."""

import asyncio
import json

import pytest
from fleets import HERE
from post import Post

from toolfleet.orchestrator import Orchestrator
from toolfleet.testing import MortalFleet, Point, kill_at

LONG_S = 3.0
"""Longer than it takes to start another worker."""


@pytest.fixture(scope="module")
def fleet():
    with MortalFleet(
        ["sleeping_tools"], pools={"io": 1, "cpu": 1}, environment=HERE, lease_s=3.0, heartbeat_s=0.5
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    async with Post(fleet.settings) as post:
        yield post


@pytest.fixture
async def orchestrator(fleet):
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


async def until_asleep(post, queue="io"):
    """Wait until no worker has a call, and one waits for its time."""
    keys = post.keys
    async with asyncio.timeout(20):
        while not await post.client.zcard(keys.scheduled(queue)) or any(
            [await post.client.xlen(keys.queue(queue, level)) for level in (0, 3, 6)]
        ):
            await asyncio.sleep(0.02)


def noted(ledger):
    return [int(line) for line in ledger.read_text().split()] if ledger.exists() else []


async def result_of(post, tool, queue="io", **arguments):
    post.send(post.call(tool, arguments), queue=queue)
    _, result = await post.result()
    return result


async def test_U10_a_sleeping_call_costs_no_slot_and_goes_on_when_its_worker_is_gone(fleet, post, orchestrator, ledger):
    post.send(post.call("rounds", {"ledger": str(ledger), "count": 2, "seconds": LONG_S}))
    await until_asleep(post)
    # The one place of its tool is free, too.
    other = await orchestrator.call("rounds", {"ledger": str(ledger) + "2", "count": 1, "seconds": 0.1})
    assert json.loads(other.content) == [1, 1]
    [worker] = [worker for worker in fleet.workers if worker.pool == "io" and worker.process.poll() is None]
    await asyncio.to_thread(fleet.kill, worker)
    fleet.start_worker("io")
    _, returned = await post.result()
    assert json.loads(returned.content) == [2, 1]
    assert noted(ledger) == [0, 1]


async def test_U10_a_worker_killed_on_the_way_to_a_sleep_is_followed_by_one_that_sleeps_on(fleet, post, ledger):
    for worker in [worker for worker in fleet.workers if worker.pool == "io" and worker.process.poll() is None]:
        await asyncio.to_thread(fleet.kill, worker)
    doomed = fleet.start_fated("io", kill_at(Point.LEAVING))
    await asyncio.to_thread(fleet.wait_until_ready)
    post.send(post.call("rounds", {"ledger": str(ledger), "count": 2, "seconds": 0.5}))
    await asyncio.to_thread(doomed.process.wait, 30)
    fleet.start_worker("io")
    _, returned = await post.result()
    assert json.loads(returned.content) == [2, 2]
    assert noted(ledger) == [0, 1]


async def test_U10_sleeps_behind_one_checkpoint_are_told_apart_by_their_number(post):
    assert (await result_of(post, "rest_twice", seconds=0.2)).content == "1"


async def test_U10_a_tool_without_a_checkpoint_sleeps_in_its_place_and_its_clock_stands_still(post):
    assert (await result_of(post, "stay_asleep", seconds=0.6)).content == "awake"


@pytest.mark.parametrize(("tool", "queue"), [("sleep_on_thread", "io"), ("sleep_in_process", "cpu")])
async def test_U10_a_plain_function_sleeps_too(post, tool, queue):
    assert (await result_of(post, tool, queue, seconds=0.2)).content == "awake"


@pytest.mark.parametrize("seconds", [-1, "nan", "inf", True, 1e9, None])
async def test_U10_what_is_no_time_or_ends_after_the_deadline_is_refused(post, seconds):
    failed = await result_of(post, "sleep_for", seconds=seconds)
    assert "sleeps for" in failed.message
    assert ("give seconds" in failed.message) != ("long_running" in failed.message)


async def test_U10_a_call_that_is_cancelled_while_it_sleeps_has_ended(post, orchestrator, ledger):
    arguments = {"ledger": str(ledger), "count": 2, "seconds": 3.0}
    submitted = await orchestrator.call("rounds", arguments, patience_s=0)
    await until_asleep(post)
    assert (await orchestrator.cancel_task(submitted.handle)).state == "cancelled"
    async with asyncio.timeout(20):
        while await post.client.zcard(post.keys.scheduled("io")):
            await asyncio.sleep(0.05)
    assert noted(ledger) == [0]
