"""A worker that is asked to stop: what runs may end, what does not end is handed back or in doubt, none is lost."""

import asyncio

import pytest
from fleets import asking, fleet_of
from processes import ask_to_stop, replenish, until_gone, worker_of

from toolfleet.orchestrator import Orchestrator

WAIT_S = 20


@pytest.fixture(scope="module")
def patient_fleet():
    with fleet_of(pools={"io": 2, "cpu": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def hasty_fleet():
    """Half a second to end, and a call may be delivered once: a hand-back must not count as a lost worker."""
    with fleet_of(pools={"io": 2, "cpu": 2}, shutdown_grace_s=0.5, max_deliveries=1) as running:
        yield running


@pytest.fixture
async def begin():
    """Start calls on a fleet; a task whose result is their contents."""
    orchestrators = []

    async def begun(fleet, *calls):
        orchestrator = await Orchestrator(settings=fleet.settings).__aenter__()
        orchestrators.append(orchestrator)

        async def contents():
            return [message.content for message in await orchestrator.execute(asking(*calls))]

        return asyncio.create_task(contents())

    yield begun
    for orchestrator in orchestrators:
        await orchestrator.__aexit__(None, None, None)


@pytest.mark.parametrize("tool", ["play", "play_once", "play_in_process", "play_in_process_once"])
async def test_a_running_call_may_end(patient_fleet, begin, stage, tool):
    replenish(patient_fleet, **({"cpu": 1} if "process" in tool else {"io": 2}))
    answer = await begin(patient_fleet, (tool, {"stage": stage.path}))
    actor = await stage.enters()
    worker = worker_of(patient_fleet, actor.pid)
    ask_to_stop(worker)
    if worker.pool == "io":
        others = await begin(patient_fleet, *(("echo", {"value": n}) for n in range(20)))
        assert await others == [str(n) for n in range(20)]
    actor.returns("in peace")
    assert await answer == ["in peace"]
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    assert len(stage.actors) == 1


@pytest.mark.parametrize("tool", ["play", "play_in_process", "play_in_thread"])
async def test_a_repeatable_call_that_takes_too_long_is_handed_to_another_worker(hasty_fleet, begin, stage, tool):
    replenish(hasty_fleet, **{"cpu" if "process" in tool else "io": 2})
    answer = await begin(hasty_fleet, (tool, {"stage": stage.path}))
    first = await stage.enters()
    worker = worker_of(hasty_fleet, first.pid)
    ask_to_stop(worker)
    second = await stage.enters()
    assert second.call_id == first.call_id
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    until_gone(first.pid)
    second.returns("by another")
    assert await answer == ["by another"]


@pytest.mark.parametrize("tool", ["play_once", "play_in_process_once"])
async def test_a_call_with_an_effect_that_takes_too_long_is_in_doubt(hasty_fleet, begin, stage, tool):
    replenish(hasty_fleet, **{"cpu" if "process" in tool else "io": 1})
    answer = await begin(hasty_fleet, (tool, {"stage": stage.path}))
    actor = await stage.enters()
    worker = worker_of(hasty_fleet, actor.pid)
    ask_to_stop(worker)
    [content] = await answer
    assert "may or may not have happened" in content
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    until_gone(actor.pid)
    assert len(stage.actors) == 1
