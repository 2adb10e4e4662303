"""How a whole fleet stands: what it costs to ask, and that nothing in Redis keeps it from being told."""

import asyncio

import pytest

from benchmarks.commands import counted
from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.status.fleet_standing import LATEST_RUNS, FleetView
from toolfleet.orchestrator.store.run_states import COMPARED
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

ASKED = 10
FEW, MANY = 200, 3000
WALKS = {"scan", "zscan", "sscan", "hscan", "keys", "sort"}


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def store(client, settings):
    return RunStore(client, settings, Seal(settings))


@pytest.fixture
def view(client, settings):
    return FleetView(client, settings)


def started(run_id, **terms):
    return machine.STARTED.model_copy(update={"run_id": run_id, "terms": RunTerms(max_turns=9, **terms)})


async def begin(store, first, last):
    await asyncio.gather(*(store.begin(started(f"{n:016x}"), owner="a") for n in range(first, last)))


async def cost(client, view):
    """What a frame asks of Redis: reads, and commands by name, those in scripts included."""

    async def ask():
        for _ in range(ASKED):
            await view.standing()

    busy, idle = await counted(client, ask)
    return busy.for_each(ASKED, idle)


async def test_W8_a_frame_costs_the_same_few_commands_whatever_is_stored(client, store, view):
    await begin(store, 0, FEW)
    assert (await view.standing()).runs.stored == FEW  # and the scripts are loaded
    few = await cost(client, view)
    await begin(store, FEW, MANY)
    many = await cost(client, view)
    assert (await view.standing()).runs.stored == MANY
    some = {"hmget", "zadd"}  # as many as there are to compare
    assert {name: n for name, n in many.commands.items() if name not in some} == {
        name: n for name, n in few.commands.items() if name not in some
    }
    assert not WALKS & set(many.commands)
    assert many.reads <= 8
    in_scripts = {"hmget": COMPARED, "zadd": COMPARED, "zcount": 2 * len(State), "hgetall": LATEST_RUNS}
    assert all(many.commands[name] <= most + 3 for name, most in in_scripts.items())
    assert sum(calls for name, calls in many.commands.items() if name not in in_scripts) <= 25


async def test_runs_are_counted_by_their_states_and_the_newest_are_listed(store, view):
    await begin(store, 0, 30)
    asking = await store.begin(started("asking", tenant="acme"), owner="a")
    answer = machine.reply(0, 0)
    await store.append(asking.run.on(answer), answer, follows=asking.link, owner="a")
    runs = (await view.standing()).runs
    assert runs.stored == 31
    assert runs.by_state == {State.THINKING: 30, State.DONE: 1}
    assert len(runs.latest) == LATEST_RUNS
    assert (runs.latest[0].run_id, runs.latest[0].tenant, runs.latest[0].state) == ("asking", "acme", "done")


async def test_of_very_many_budgets_some_are_told_and_all_are_counted(client, settings, view):
    budgets = TenantBudgets(client, settings)
    await asyncio.gather(*(budgets.set(f"t{n:03}", "day", Bounds(usd=n + 1)) for n in range(50)))
    told = await view.standing()
    assert (told.budgets_stored, told.budgets[0].tenant, len(told.budgets)) == (50, "t000", 20)
    assert told.budgets[0].amounts["usd"].limit == 1


async def test_what_strangers_left_in_redis_keeps_nothing_from_being_told(client, settings, store, view):
    keys = settings.keys
    await begin(store, 0, 1)
    await client.zadd(keys.runs(), {"forged": 9e15})
    await client.hset(keys.head("forged"), mapping={"state": "nonsense", "calls": "²", "title": "\x1b[2J"})
    await client.hset(keys.counters(), mapping={"refused": "3", "9" * 5000: "9" * 5000, "²": "²"})
    await client.xadd(keys.dead_letters(), {"reason": "why", "deliveries": "²", "raw:h": "[" * 5000})
    await client.xadd(keys.dead_letters(), {"deliveries": "9" * 5000})
    await client.zadd(keys.workers(), {"nobody": 9e15})
    await client.set(keys.worker("nobody"), b"\xff" * 5000)
    await client.hset(keys.budgets(), mapping={"day:t": "{", b"\xff\xfe": "1", "never:t": '{"usd": 1}'})
    await client.hset(keys.limits(), mapping={"tool": "[]", b"\xff": "{}"})
    told = await view.standing()
    assert told.runs.by_state == {State.THINKING: 1}
    assert told.failing.rare == {"refused": 3}
    assert (told.failing.dead_letters, told.failing.newest_dead[1].reason) == (2, "why")
    assert (told.workers, told.budgets) == ((), ())
