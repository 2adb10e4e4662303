"""How long a worker that was asked to stop may still take: a second signal ends its grace, and then it has to go."""

import asyncio

import pytest
from fleets import asking, fleet_of
from processes import WAIT_S, ask_to_stop, replenish, until_gone, worker_of

from toolfleet.connections import connect
from toolfleet.exit_status import ExitStatus
from toolfleet.workers.celery.stopping import GOES_WITHIN_S


@pytest.fixture(scope="module")
def patient_fleet():
    """Nothing ends within this grace by itself, and no delivery may be lost."""
    with fleet_of(pools={"io": 2, "cpu": 2}, shutdown_grace_s=600, max_deliveries=1) as running:
        yield running


@pytest.fixture(scope="module")
def threaded_fleet():
    """As above, with Celery's threads; half a second to end."""
    with fleet_of("--kind", "threads", pools={"io": 2}, shutdown_grace_s=0.5, max_deliveries=1) as running:
        yield running


@pytest.fixture
def begin(orchestrators_of):
    async def begun(fleet, tool, stage):
        orchestrator = await orchestrators_of(fleet)

        async def content():
            [message] = await orchestrator.execute(asking((tool, {"stage": stage.path})))
            return message.content

        return asyncio.create_task(content())

    return begun


async def until_withdrawn(fleet, worker):
    """It has heard the first signal."""

    def is_announced(client):
        names = client.zrange(fleet.settings.keys.workers(), 0, -1)
        return any(name.decode().startswith(worker.name) for name in names)

    with connect(fleet.settings) as client:
        async with asyncio.timeout(WAIT_S):
            while await asyncio.to_thread(is_announced, client):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("tool", ["play", "play_in_process", "play_in_thread"])
async def test_a_second_signal_ends_the_grace_and_the_call_goes_to_another_worker(patient_fleet, begin, stage, tool):
    replenish(patient_fleet, **{"cpu" if "process" in tool else "io": 2})
    answer = await begin(patient_fleet, tool, stage)
    first = await stage.enters()
    worker = worker_of(patient_fleet, first.pid)
    ask_to_stop(worker)
    await until_withdrawn(patient_fleet, worker)
    ask_to_stop(worker)
    second = await stage.enters()
    assert second.call_id == first.call_id
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == ExitStatus.DONE
    until_gone(first.pid)
    second.returns("by another")
    assert await answer == "by another"


async def test_who_asks_again_and_again_is_heard(patient_fleet, begin, stage):
    replenish(patient_fleet, cpu=1)
    answer = await begin(patient_fleet, "play_in_process_once", stage)
    actor = await stage.enters()
    worker = worker_of(patient_fleet, actor.pid)
    async with asyncio.timeout(WAIT_S):
        while worker.process.poll() is None:
            ask_to_stop(worker)
            await asyncio.sleep(0.02)
    assert "may or may not have happened" in await answer
    assert len(stage.actors) == 1


async def test_a_worker_goes_though_its_server_says_nothing():
    with fleet_of(pools={"io": 1}, shutdown_grace_s=0) as fleet:
        [worker] = fleet.workers
        with connect(fleet.settings) as client:
            # For much longer than that: a machine may be slow.
            client.execute_command("CLIENT", "PAUSE", round(6 * GOES_WITHIN_S * 1000))
        ask_to_stop(worker)
        assert await asyncio.to_thread(worker.process.wait, WAIT_S) == ExitStatus.FAILED
        assert "worker_did_not_stop" in worker.log_tail()


async def test_a_thread_that_does_not_end_holds_no_worker(threaded_fleet, begin, stage):
    answer = await begin(threaded_fleet, "play", stage)
    first = await stage.enters()
    worker = worker_of(threaded_fleet, first.pid)
    ask_to_stop(worker)
    second = await stage.enters()
    assert second.seen["attempt"] == first.seen["attempt"]
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == ExitStatus.DONE
    second.returns("by another")
    assert await answer == "by another"


async def test_a_call_on_a_thread_may_end(threaded_fleet, begin, stage):
    replenish(threaded_fleet, io=1)
    answer = await begin(threaded_fleet, "play_once", stage)
    actor = await stage.enters()
    ask_to_stop(worker_of(threaded_fleet, actor.pid))
    actor.returns("in peace")
    assert await answer == "in peace"
