"""How many runs are in which state: exact for all that is stored, and put right where somebody has meddled."""

import asyncio

import pytest

from benchmarks.commands import counted
from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.orchestrator.run.events import RunStopped
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.store.run_states import COMPARED, RunStates
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

MANY = 700


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def store(client, settings):
    return RunStore(client, settings, Seal(settings))


@pytest.fixture
def states(client, settings):
    return RunStates(client, settings.keys)


def started(run_id, tenant=""):
    return machine.STARTED.model_copy(update={"run_id": run_id, "terms": RunTerms(max_turns=9, tenant=tenant)})


async def begin(store, runs, tenant=""):
    return await asyncio.gather(*(store.begin(started(f"{tenant}{n:04}", tenant), owner="a") for n in range(runs)))


async def answer(store, stored):
    replied = machine.reply(0, 0)
    assert await store.append(stored.run.on(replied), replied, follows=stored.link)


async def cancel(store, stored):
    stopped = RunStopped(state="cancelled", reason="no more")
    assert await store.append(stored.run.on(stopped), stopped, follows=stored.link)


async def test_all_stored_runs_are_counted_by_their_states_and_each_tenants_by_themselves(store, states):
    nobodys, acmes = await begin(store, MANY), await begin(store, 30, tenant="acme")
    await asyncio.gather(*(answer(store, run) for run in nobodys[:600]), *(cancel(store, run) for run in acmes[:9]))
    assert (await states.tally()).by_state == {State.THINKING: 121, State.DONE: 600, State.CANCELLED: 9}
    assert (await states.tally(tenant="")).by_state == {State.THINKING: 100, State.DONE: 600}
    assert (await states.tally(tenant="acme")).by_state == {State.THINKING: 21, State.CANCELLED: 9}
    assert (await states.tally(tenant="acme2")).by_state == {}


async def test_to_count_costs_the_same_whatever_is_stored(client, store, states):
    async def commands():
        await states.tally()
        busy, idle = await counted(client, states.tally)
        return busy.for_each(1, idle).commands

    await begin(store, 200)
    few = await commands()
    await begin(store, MANY, tenant="t")
    assert await commands() == few
    assert sum(few.values()) <= 2 * COMPARED + 2 * len(State) + 10


async def test_runs_that_have_ended_for_good_or_were_deleted_are_not_counted(client, settings, store, states):
    runs = await begin(store, 4)
    await store.delete(runs[0].run.run_id)
    await client.delete(settings.keys.head(runs[1].run.run_id), settings.keys.run(runs[1].run.run_id))
    assert (await states.tally()).by_state == {State.THINKING: 2}


async def test_what_somebody_has_put_wrong_is_counted_right_after_some_looks(client, settings, store, states):
    key = settings.keys.run_states()
    runs = await begin(store, 30, tenant="acme") + await begin(store, 30)
    await asyncio.gather(*(answer(store, run) for run in runs[:10]))
    await client.delete(key)  # as if an older version had written them all
    assert (await states.tally()).by_state == {State.THINKING: 50, State.DONE: 10}
    await client.zadd(key, {runs[0].run.run_id: 5, "nobody": 2**51, "\xff\0": float("inf")})
    for _ in range(20):
        found = await states.tally()
    assert found.by_state == {State.THINKING: 50, State.DONE: 10}
    assert (await states.tally(tenant="acme")).by_state == {State.THINKING: 20, State.DONE: 10}
