"""Two versions of a tool at once, with different schemas: a run goes on with the one that it began with."""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking
from processes import ask_to_stop, kill, lines, until_announced

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.connections import connect
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.tools import offer

ONE, TWO = {"item": "tea"}, {"article": "tea", "currency": "EUR"}
WAIT_S = 30


@pytest.fixture
def fleet():
    with LocalFleet(["version_tools"], pools={}, environment=HERE, worker_options=("--concurrency", "1")) as running:
        yield running


def start(fleet, version, **options):
    worker = fleet.start_worker("io", environment={"VERSION_OF_TOOLS": str(version)}, **options)
    until_announced(fleet, worker)
    return worker


async def until_live(orchestrator, *versions):
    async with asyncio.timeout(WAIT_S):
        while await orchestrator.catalog.offered() is None or live(orchestrator) != [*versions]:
            await asyncio.sleep(0.05)


def live(orchestrator):
    return sorted(orchestrator.catalog.versions.get("quote", ()))


async def stop(fleet, worker):
    ask_to_stop(worker)
    await asyncio.to_thread(worker.process.wait, WAIT_S)
    fleet.workers.remove(worker)


def quoting(arguments):
    return requesting(("q", "quote", json.dumps(arguments))), "tool_calls"


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


class Waiting:
    """A reply that a model gives when it is let, and until then its run has a reply to wait for."""

    def __init__(self, arguments):
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self._reply = quoting(arguments)[0]

    async def __call__(self, messages):
        self.asked.set()
        await self.may.wait()
        return self._reply


async def test_U5_a_run_goes_on_with_the_version_it_began_with_and_new_runs_get_the_newest(fleet, monkeypatch):
    monkeypatch.setattr(offer, "TOOLS_BACK_WITHIN_S", 0.5)
    one = await asyncio.to_thread(start, fleet, 1)
    both, gone = Waiting(ONE), Waiting(ONE)
    model = WrittenModel(quoting(ONE), (both, "tool_calls"), quoting(TWO))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await until_live(orchestrator, 1)
        run_id = await orchestrator.start("?")
        await both.asked.wait()
        await asyncio.to_thread(start, fleet, 2)
        await until_live(orchestrator, 1, 2)

        newer = await orchestrator.run("?")
        assert answers(newer) == ["two: tea in EUR"]
        assert newer.versions == {"quote": 2, "book": 2}
        assert await orchestrator.call("quote", TWO) == Returned(content="two: tea in EUR")
        model._replies[:] = [(gone, "tool_calls")]
        both.may.set()
        await gone.asked.wait()
        assert answers(await orchestrator.get(run_id)) == ["one: tea", "one: tea"]

        await stop(fleet, one)
        await until_live(orchestrator, 2)
        gone.may.set()
        run = await orchestrator.wait(run_id)
        assert run.versions == {"quote": 1, "book": 1}
        assert run.state is State.DONE
        last = run.calls[-1].result
        assert isinstance(last, Failed)
        assert last.kind is FailureKind.UNKNOWN_TOOL
        assert "version 1 of quote is served by no live worker; version 2 is. It was not called." in last.message

        model._replies[:] = [quoting(TWO)]
        forked = await orchestrator.wait(await orchestrator.fork(run_id, at=1))
        assert answers(forked) == ["one: tea", "two: tea in EUR"]


async def test_U5_calls_whose_last_worker_is_killed_are_run_in_no_other_version_and_say_why(fleet, tmp_path):
    one = await asyncio.to_thread(start, fleet, 1)
    path = tmp_path / "ledger"
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await until_live(orchestrator, 1)
        book = "book", {"path": str(path)}
        calling = asyncio.create_task(orchestrator.execute(asking(book, ("quote", ONE), book), timeout_s=12.0))
        await asyncio.to_thread(until_said, path)  # and the others wait for its slot
        await asyncio.to_thread(start, fleet, 2)
        await asyncio.to_thread(forget_killed, fleet, one)
        begun, quoted, booked = await calling
    assert "may or may not have happened" in begun.content
    said = "version 1 of {} is served by no live worker; version 2 is, and none came"
    assert quoted.content.startswith(said.format("quote"))
    assert booked.content.startswith(said.format("book"))
    assert lines(path) == ["one"]


def until_said(path):
    give_up_at = time.monotonic() + WAIT_S
    while not lines(path):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def forget_killed(fleet, worker):
    """Kill a worker, and have its announcement run out now."""
    kill(worker)
    fleet.workers.remove(worker)
    keys, name = fleet.settings.keys, f"{worker.name}@{os.uname().nodename}"
    with connect(fleet.settings) as client:
        client.delete(keys.worker(name))
        client.zrem(keys.workers(), name)


async def test_an_agents_run_has_the_versions_of_the_run_above_it(fleet):
    await asyncio.to_thread(start, fleet, 1)
    asks = requesting(("a", "buyer", json.dumps({"task": "buy"})))
    child = Waiting(ONE)
    model = WrittenModel((asks, "tool_calls"), (child, "tool_calls"))
    agent = Agent(name="buyer", description="Buys.", tools=("quote",))
    async with Orchestrator(model=model, settings=fleet.settings, agents=[agent]) as orchestrator:
        await until_live(orchestrator, 1)
        before = Waiting({"task": "buy"})
        before._reply = asks
        model._replies[0] = (before, "tool_calls")
        run_id = await orchestrator.start("?")
        await before.asked.wait()
        await asyncio.to_thread(start, fleet, 2)
        await until_live(orchestrator, 1, 2)
        child.may.set()
        before.may.set()
        run = await orchestrator.wait(run_id)
        below = await orchestrator.get(run.calls[0].call_id)
    assert below.versions == {"quote": 1}
    assert answers(below) == ["one: tea"]


async def test_a_run_that_began_without_versions_goes_on_without_one_while_that_is_served(fleet):
    await asyncio.to_thread(start, fleet, 0)
    second = Waiting(ONE)
    model = WrittenModel(quoting(ONE), (second, "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await orchestrator.catalog.choose(["quote"])
        run_id = await orchestrator.start("?")
        await second.asked.wait()
        await asyncio.to_thread(start, fleet, 2)
        await until_live(orchestrator, 0, 2)
        assert await orchestrator.call("quote", TWO) == Returned(content="two: tea in EUR")
        second.may.set()
        run = await orchestrator.wait(run_id)
    assert answers(run) == ["none: tea", "none: tea"]
    assert "versions" not in run.model_dump(mode="json")
