"""A slow call of a cancelled run, on real workers: whoever is asked says the same of it."""

import asyncio
import json
import subprocess
import sys

import pytest
from conversations import WrittenModel, requesting
from fleets import fleet_of
from stages import stage_of_its_own

from tests.http.fleet_of_doors import api_of
from toolfleet.calls import run_of
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.events import RunStopped
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_reader import handle_of
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "long": 1}) as running:
        yield running


def told_on_the_command_line(settings, call_id):
    shown = subprocess.run(
        [sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "calls", "show", call_id, "--json"],
        env=settings.as_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(shown.stdout)["state"]


async def told_by_everybody(api, orchestrator, settings, call):
    """The state of the call, and of its handle, as each of those who can be asked tells it."""
    run_id, handle = run_of(call.call_id), handle_of(call)
    told = {
        "handle": (await orchestrator.task(handle)).state,
        "overview": (await orchestrator.calls(run_id))[0].state,
        "handle over HTTP": (await api.client.get(f"/v1/handles/{handle}")).json()["state"],
        "run over HTTP": (await api.client.get(f"/v1/runs/{run_id}/calls")).json()["calls"][0]["state"],
        "command line": await asyncio.to_thread(told_on_the_command_line, settings, call.call_id),
    }
    assert len(set(told.values())) == 1, told
    return told["handle"]


async def test_a_slow_call_of_a_cancelled_run_reads_the_same_everywhere(fleet):
    settings, keys = fleet.settings, fleet.settings.keys
    async with stage_of_its_own() as stage, connect_async(settings) as client, api_of(settings) as api:
        given = json.dumps({"stage": stage.path})
        model = WrittenModel(
            (requesting(("slow", "play_long", given)), "tool_calls"),
            (requesting(("quick", "play", given)), "tool_calls"),
        )
        async with Orchestrator(model=model, settings=settings) as orchestrator:
            run_id = await orchestrator.start("?", slow="handle")
            entered = [await stage.enters() for _ in range(2)]
        # Its orchestrator is gone, and who cancelled the run died before the workers were told.
        store = RunStore(client, settings, Seal(settings))
        run = await write_from_outside(store, run_id, RunStopped(state="cancelled", reason="enough"))
        call = run.calls[0]
        assert (run.state, call.late_result) == (State.CANCELLED, None)
        slow = next(actor for actor in entered if actor.call_id == call.call_id)

        async with Orchestrator(settings=settings) as other:
            assert await told_by_everybody(api, other, settings, call) == "running"
            slow.returns("at last")
            await other.task(call.result.handle, wait_s=WAIT_S)
            assert await told_by_everybody(api, other, settings, call) == "succeeded"
            # Results are kept for a day. Afterwards only the run tells of the call.
            await client.delete(keys.result(call.call_id), keys.progress(call.call_id))
            assert await told_by_everybody(api, other, settings, call) == "cancelled"
        for actor in stage.actors:
            actor.returns()


@pytest.mark.parametrize("state", ["cancelled", "failed"])
async def test_a_slow_call_that_an_ended_run_waited_for_reads_the_same_everywhere(fleet, state):
    settings, keys = fleet.settings, fleet.settings.keys
    async with stage_of_its_own() as stage, connect_async(settings) as client, api_of(settings) as api:
        model = WrittenModel((requesting(("slow", "play_long", json.dumps({"stage": stage.path}))), "tool_calls"))
        async with Orchestrator(model=model, settings=settings) as orchestrator:
            run_id = await orchestrator.start("?", slow="wait")
            slow = await stage.enters()
            async with asyncio.timeout(WAIT_S):
                while (await orchestrator.get(run_id)).state is not State.PARKED:
                    await asyncio.sleep(0.02)
        # As above; and what the model was told of its call then is not how the call has ended.
        store = RunStore(client, settings, Seal(settings))
        run = await write_from_outside(store, run_id, RunStopped(state=state, reason="enough"))
        [call] = run.calls
        assert "may or may not have happened" in run.messages[-1].content

        async with Orchestrator(settings=settings) as other:
            assert await told_by_everybody(api, other, settings, call) == "running"
            slow.returns("at last")
            await other.task(call.handle, wait_s=WAIT_S)
            assert await told_by_everybody(api, other, settings, call) == "succeeded"
            await client.delete(keys.result(call.call_id), keys.progress(call.call_id))
            assert await told_by_everybody(api, other, settings, call) == "cancelled"
            # Whoever goes on with the run does not wait for the call, so it does not come back to its queue.
            await other.resume(run_id)
            assert await told_by_everybody(api, other, settings, call) == "cancelled"
            await other.cancel(run_id)
