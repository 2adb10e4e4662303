"""Calls on their way into a child process of a pool when the connection to Redis is lost: they run once."""

import asyncio
import signal
import time
from contextlib import suppress

import psutil
import pytest
from fleets import asking, fleet_of
from processes import WAIT_S, alive, ask_to_stop, cut_connections, lines, replenish, until_ready

from toolfleet.connections import connect
from toolfleet.orchestrator import Orchestrator
from toolfleet.streams import Priority
from toolfleet.testing.mortal_fleet import tool_processes

HEARTBEAT_S = 0.5
CHILDREN = 2


@pytest.fixture(scope="module")
def fleet():
    with fleet_of("--concurrency", str(CHILDREN), pools={"cpu": 1}, lease_s=3, heartbeat_s=HEARTBEAT_S) as running:
        yield running


@pytest.fixture
def children(fleet):
    """The pool's processes, which are stopped during the test, so that nothing that is given to them can begin."""
    replenish(fleet, cpu=1)
    [worker] = alive(fleet, "cpu")
    until_ready(fleet, worker, CHILDREN)
    pool = tool_processes(worker)
    assert len(pool) == CHILDREN
    for child in pool:
        child.send_signal(signal.SIGSTOP)
    yield pool
    for child in pool:
        with suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("tool", ["play_in_process_once", "play_in_process"])
async def test_a_call_that_is_in_a_childs_pipe_when_the_connection_drops_runs_once(fleet, stage, children, tool):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking((tool, {"stage": stage.path}))))
        await until_a_child_could_read_it(fleet)
        await asyncio.to_thread(cut_connections, fleet)
        # A message that is given back comes to the other child within a heartbeat or two.
        await asyncio.sleep(6 * HEARTBEAT_S)
        for child in children:
            child.send_signal(signal.SIGCONT)
        actor = await stage.enters()
        actor.returns("played")
        assert [answer.content for answer in await answering] == ["played"]
        # A second delivery may be behind the first one in the same pipe, or with the other child.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stage.enters(), 4 * HEARTBEAT_S)


async def test_a_call_that_is_in_a_childs_pipe_when_its_worker_is_told_to_stop_runs_once(fleet, stage, children):
    [stopping] = alive(fleet, "cpu")
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking(("play_in_process_once", {"stage": stage.path}))))
        await until_a_child_could_read_it(fleet)
        await asyncio.to_thread(replenish, fleet, cpu=2)
        ask_to_stop(stopping)
        await asyncio.sleep(4 * HEARTBEAT_S)  # the other worker would have it by now
        for child in children:
            child.send_signal(signal.SIGCONT)
        actor = await stage.enters()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stage.enters(), 4 * HEARTBEAT_S)
        actor.returns("played")
        assert [answer.content for answer in await answering] == ["played"]
    await asyncio.to_thread(stopping.process.wait, WAIT_S)


async def test_calls_whose_children_are_lost_begin_once_whether_or_not_they_had_begun(fleet, children, tmp_path):
    file = tmp_path / "begun"
    calls = [("note_and_leave", {"file": str(file), "mark": mark}) for mark in ("first", "second")]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking(*calls)))
        await until_a_child_could_read_it(fleet, calls=CHILDREN)
        children[0].kill()  # before it could begin
        children[1].send_signal(signal.SIGCONT)  # it begins, and is lost by that
        answers = await answering
    assert sorted(lines(file)) == ["first", "second"]
    assert all("may or may not have happened" in answer.content for answer in answers)


async def until_a_child_could_read_it(fleet, calls=1):
    """Wait until the worker has the calls, and has had the time to write each to a child."""
    give_up = time.monotonic() + WAIT_S
    with connect(fleet.settings) as client:
        while pending(client, fleet.settings.keys.queue("cpu", Priority.NORMAL)) < calls:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.01)
    await asyncio.sleep(HEARTBEAT_S)


def pending(client, stream):
    return sum(group["pending"] for group in client.xinfo_groups(stream)) if client.exists(stream) else 0
