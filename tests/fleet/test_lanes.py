"""Workers with different tools on one queue: each call comes to a worker that can run it, once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from fleets import HERE, asking
from processes import ask_to_stop, lines, until_announced

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

CALLS = 1000
WAIT_S = 60


@pytest.fixture(params=["io", "cpu"])
def divided(request):
    """Two workers of one pool, each with tools of its own."""
    with LocalFleet(["lane_tools"], pools={request.param: 1}, environment=HERE) as fleet:
        fleet._modules = ["other_lane_tools"]
        other = fleet.start_worker(request.param)
        until_announced(fleet, other)
        yield fleet, request.param


async def test_each_of_a_thousand_calls_comes_once_to_a_worker_with_its_tool(divided, tmp_path):
    fleet, pool = divided
    ledger = str(tmp_path / "ledger")
    here, there = ("note_here", "note_there") if pool == "io" else ("note_in_process", "note_in_other_process")
    calls = [((here, there)[n % 2], {"path": ledger, "line": str(n)}) for n in range(CALLS)]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        contents = [message.content for message in await orchestrator.execute(asking(*calls))]
    expected = [f"{('here', 'there')[n % 2]} {n}" for n in range(CALLS)]
    assert contents == expected
    assert Counter(lines(tmp_path / "ledger")) == Counter(expected)


@pytest.fixture
def old_release():
    with LocalFleet(["release_tools"], pools={"io": 2}, environment=HERE) as fleet:
        yield fleet


async def test_a_release_that_adds_changes_and_removes_tools_loses_and_doubles_no_call(old_release, tmp_path):
    """New workers start beside old ones, under load; then the old ones are stopped."""
    fleet, path = old_release, tmp_path / "ledger"
    old = list(fleet.workers)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        load = Load(orchestrator, path)
        loading = [asyncio.create_task(load.go_on(name)) for name in ("keep", "reword", "widen", "removed", "added")]
        await load.until_answered(200)
        new = [fleet.start_worker("io", environment={"RELEASE_OF_TOOLS": "new"}) for _ in range(2)]
        await asyncio.to_thread(until_announced, fleet, *new)
        await load.until_answered(400)
        for worker in old:
            ask_to_stop(worker)
        for worker in old:
            assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
            fleet.workers.remove(worker)
        await load.until_answered(400)
        load.is_over = True
        await asyncio.gather(*loading)
    assert all(worker.is_running for worker in new)
    assert "tools_changed" in new[0].log_path.read_text()
    assert {line.partition(" ")[0] for line in load.sent} == {"keep", "reword", "widen", "removed", "added"}
    # What was queued for the tool that nobody serves any more ends with an error that says so, and has not run.
    given_up = [answer for answer in load.answers if answer.startswith("no live worker serves removed, and none came")]
    done = Counter(load.answers) - Counter(given_up)
    left = Counter(load.sent) - done
    assert done <= Counter(load.sent)
    assert {line.partition(" ")[0] for line in left} <= {"removed"}
    assert left.total() == len(given_up)
    assert Counter(lines(path)) == done


class Load:
    """Calls without a pause, each of a tool that is offered at that moment, and what came of them."""

    def __init__(self, orchestrator, path):
        self.sent, self.answers, self.is_over = [], [], False
        self._orchestrator, self._path = orchestrator, str(path)
        self._answered = asyncio.Condition()

    async def go_on(self, name):
        while not self.is_over:
            if name not in await self._orchestrator.catalog.offered():
                await asyncio.sleep(0.05)
                continue
            asked = [(name, {"path": self._path, "line": f"{len(self.sent)}-{n}"}) for n in range(10)]
            self.sent += [f"{name} {given['line']}" for _, given in asked]
            messages = await self._orchestrator.execute(asking(*asked))
            self.answers += [message.content for message in messages]
            async with self._answered:
                self._answered.notify_all()

    async def until_answered(self, more):
        goal = len(self.answers) + more
        async with self._answered:
            await asyncio.wait_for(self._answered.wait_for(lambda: len(self.answers) >= goal), WAIT_S)
