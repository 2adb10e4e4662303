"""What the fleet offers is what live workers serve: no worker, no offer; one name, one spec."""

import asyncio

import pytest
from fleets import asking, fleet_of
from processes import ask_to_stop, kill, until_announced

from toolfleet.connections import connect_async
from toolfleet.keys import ANNOUNCEMENT_TTL_S
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.fleet import catalog

WAIT_S = 20
EXIT_CONFLICT = 78
"""EX_CONFIG of sysexits.h."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


@pytest.fixture
def start(fleet):
    """Starts a worker of a queue of its own, with one more module of tools; it is stopped at the end of the test."""
    started = []

    def started_with(module):
        worker = fleet.start_worker("translations", "--import", module)
        started.append(worker)
        return worker

    yield started_with
    for worker in started:
        stopped(worker)


def stopped(worker):
    if worker.process.poll() is None:
        ask_to_stop(worker)
    return worker.process.wait(WAIT_S)


async def offered(fleet):
    """What an orchestrator that has just come may offer: the arguments of each tool, by name."""
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        return {
            name: set(spec.input_schema["properties"]) for name, spec in (await orchestrator.catalog.offered()).items()
        }


async def test_only_tools_of_consumed_queues_are_offered(fleet):
    names = await offered(fleet)
    assert {"echo", "add"} <= names.keys()
    assert names.keys().isdisjoint({"blocking_echo", "long_job"})


async def test_tools_are_offered_while_a_worker_serves_them(fleet, start):
    worker = start("translating_tools")
    until_announced(fleet, worker)
    assert (await offered(fleet))["translate"] == {"text"}
    assert stopped(worker) == 0
    names = await offered(fleet)
    assert "translate" not in names
    assert "echo" in names


async def test_a_tool_may_be_called_by_its_name_as_soon_as_its_worker_is_ready(fleet, start, monkeypatch):
    monkeypatch.setattr(catalog, "MAX_AGE_S", 3600.0)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        assert "translate" not in await orchestrator.catalog.offered()
        worker = start("translating_tools")
        await asyncio.to_thread(until_announced, fleet, worker)
        assert "translate" not in await orchestrator.catalog.offered()  # which is as of before
        result = await orchestrator.call("translate", {"text": "abc"})
    assert result.content == "cba"


async def test_tools_stay_while_one_of_two_workers_serves_them(fleet, start):
    first, second = start("translating_tools"), start("translating_tools")
    until_announced(fleet, first, second)
    assert stopped(first) == 0
    assert "translate" in await offered(fleet)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [answer] = await orchestrator.execute(asking(("translate", {"text": "abc"})))
    assert answer.content == "cba"


async def test_S8_another_spec_under_a_name_that_is_served_is_refused(fleet, start):
    until_announced(fleet, start("translating_tools"))
    rival = start("rival_tools")
    assert rival.process.wait(WAIT_S) == EXIT_CONFLICT
    log = rival.log_path.read_text()
    assert "tool_refused" in log
    assert "translate" in log
    assert "stop them first, or rename the tool" in log
    assert "rival_tools:translate" in log
    assert "translating_tools:translate" in log
    assert (await offered(fleet))["translate"] == {"text"}
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        assert rival.name not in {worker.worker.partition("@")[0] for worker in await orchestrator.catalog.workers()}


async def test_another_spec_is_welcome_once_the_last_worker_with_the_old_one_has_stopped(fleet, start):
    old = start("translating_tools")
    until_announced(fleet, old)
    assert stopped(old) == 0
    until_announced(fleet, start("rival_tools"))
    assert (await offered(fleet))["translate"] == {"text", "language"}


async def test_an_announcement_ends_by_itself_when_its_worker_is_killed(fleet, start):
    worker = start("translating_tools")
    until_announced(fleet, worker)
    kill(worker)
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        for key in [keys.workers(), keys.spec("translate"), *await client.keys(keys.worker(f"{worker.name}@*"))]:
            assert 0 < await client.ttl(key) <= ANNOUNCEMENT_TTL_S
        # What the server does when the time has come.
        await client.delete(keys.spec("translate"), *await client.keys(keys.worker(f"{worker.name}@*")))
    assert "translate" not in await offered(fleet)


async def test_a_tool_that_went_away_during_a_run_is_answered_as_unknown(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [answer] = await orchestrator.execute(asking(("translate", {"text": "abc"})))
        assert answer.content.startswith("There is no tool 'translate'.")
        with pytest.raises(UnknownTool, match="translate"):
            await orchestrator.execute(asking(("translate", {"text": "abc"})), tools=["translate"])
