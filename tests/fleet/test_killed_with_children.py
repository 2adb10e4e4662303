"""A worker with a pool of processes is killed: none of its children stays, whatever it did at that moment."""

import asyncio
import secrets
import time

import pytest
from fleets import asking, fleet_of
from processes import WAIT_S, kill, until_announced

from tests.orphans import left_after, marked
from toolfleet.orchestrator import Orchestrator
from toolfleet.testing.mortal_fleet import tool_processes

CHILDREN = 3
MARK = "KILLED_WITH_CHILDREN"
ELSEWHERE = ("--instrument", "without_death_signal")
"""As on systems other than Linux."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"cpu": 0}, lease_s=3, heartbeat_s=0.5, shutdown_grace_s=1) as running:
        yield running


@pytest.fixture
def marked_worker(fleet):
    """Starts a worker, and tells by what mark its processes are known."""
    started = []

    def start(*options, count=CHILDREN):
        mark = secrets.token_hex(8)
        worker = fleet.start_worker("cpu", "--concurrency", str(count), *options, environment={MARK: mark})
        started.append((worker, mark))
        return worker, mark

    yield start
    for worker, mark in started:
        worker.kill()
        for process in marked(mark, MARK):
            process.kill()


def left_of(mark):
    return left_after(mark, WAIT_S, MARK)


@pytest.mark.parametrize("options", [(), ELSEWHERE], ids=["linux", "elsewhere"])
def test_children_that_wait_for_a_call_end_with_their_worker(fleet, marked_worker, options):
    worker, mark = marked_worker(*options)
    until_announced(fleet, worker)
    assert len(tool_processes(worker)) == CHILDREN
    kill(worker)
    assert left_of(mark) == []


@pytest.mark.parametrize("born", [1, CHILDREN, 2 * CHILDREN])
def test_children_that_are_just_born_end_with_their_worker(marked_worker, born):
    worker, mark = marked_worker(count=2 * CHILDREN)
    give_up = time.monotonic() + WAIT_S
    while len(tool_processes(worker)) < born:
        assert time.monotonic() < give_up
    kill(worker)
    assert left_of(mark) == []


@pytest.mark.parametrize("options", [(), ELSEWHERE], ids=["linux", "elsewhere"])
async def test_a_child_that_has_a_call_ends_with_its_worker_and_another_worker_has_the_call(
    fleet, marked_worker, stage, options
):
    worker, mark = marked_worker(*options)
    await asyncio.to_thread(until_announced, fleet, worker)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking(("play_in_process", {"stage": stage.path}))))
        first = await stage.enters()
        await asyncio.to_thread(kill, worker)
        assert await first.leaves() == ""
        assert await asyncio.to_thread(left_of, mark) == []
        marked_worker()
        second = await stage.enters()
        second.returns("played")
        assert [answer.content for answer in await answering] == ["played"]


@pytest.mark.parametrize("options", [(), ELSEWHERE], ids=["linux", "elsewhere"])
async def test_a_worker_whose_fork_server_is_killed_ends_and_another_one_has_its_calls(
    fleet, marked_worker, stage, options
):
    worker, mark = marked_worker(*options)
    await asyncio.to_thread(until_announced, fleet, worker)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking(("play_in_process", {"stage": stage.path}))))
        await stage.enters()
        tool_processes(worker)[0].parent().kill()
        await asyncio.to_thread(worker.process.wait, WAIT_S)
        assert await asyncio.to_thread(left_of, mark) == []
        marked_worker()
        second = await stage.enters()
        second.returns("played")
        assert [answer.content for answer in await answering] == ["played"]
