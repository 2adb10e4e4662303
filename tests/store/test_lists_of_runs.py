"""The lists of runs are as long as there are runs: whose record has ended leaves them, whatever else lives."""

import asyncio

import pytest

from tests.run import machine
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.store.journal import Journal, write_from_outside
from toolfleet.orchestrator.store.leases import TRIMMED_AT_ONCE, Leases
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

WAIT_S = 20
DAY_S = 86400.0
SHORT_S = 0.05


@pytest.fixture
def store(client, settings):
    return RunStore(client, settings, Seal(settings))


async def none(suspicion):
    raise AssertionError(suspicion)


@pytest.fixture
async def leases(client, settings):
    quick = settings.model_copy(update={"heartbeat_s": 0.05})
    made = Leases(client, quick, "a", model=None, on_adopted=none, on_older_store=none, supervisor=Supervisor())
    yield made
    await made.aclose()


async def end(store, run_id, *, keep_s, tenant=""):
    """A run that has ended, and is kept for so long."""
    terms = RunTerms(max_turns=9, keep_s=keep_s, tenant=tenant)
    started = machine.STARTED.model_copy(update={"run_id": run_id, "terms": terms})
    journal = Journal(store, await store.begin(started, owner="a"), "a")
    await journal.append(machine.reply(0, 0))
    return journal


async def listed(client, settings, tenant="t"):
    keys = settings.keys
    names = [keys.runs(), keys.runs_ending(), keys.runs_of(tenant)]
    return [await client.zcard(name) for name in names]


async def until_listed(client, settings, *wanted):
    async with asyncio.timeout(WAIT_S):
        while await listed(client, settings) != list(wanted):
            await asyncio.sleep(0.02)


async def test_runs_whose_record_has_ended_leave_every_list_though_older_ones_are_kept(client, settings, store, leases):
    for n in range(25):
        await end(store, f"kept {n}", keep_s=DAY_S)
    for n in range(2 * TRIMMED_AT_ONCE):
        await end(store, f"gone {n}", keep_s=SHORT_S, tenant="t")
    await leases.start()
    await until_listed(client, settings, 25, 25, 0)
    assert {head.run_id for head in await store.heads()} == {f"kept {n}" for n in range(25)}


async def test_lists_that_nobody_tends_do_not_grow_while_runs_come_and_go(client, settings, store):
    for n in range(25):
        await end(store, f"kept {n}", keep_s=DAY_S, tenant="t")
    longest = 0
    for n in range(300):
        await end(store, f"gone {n}", keep_s=0.001, tenant="t")
        longest = max(longest, *await listed(client, settings))
    assert longest <= 25 + 20  # not 325; some have not ended yet when the next one begins


async def test_a_run_that_goes_on_stays_listed_past_the_end_that_it_was_noted_for(client, settings, store, leases):
    journal = await end(store, "m", keep_s=SHORT_S * 10, tenant="t")
    assert journal.run.state.is_terminal
    await write_from_outside(store, "m", machine.RESUMED)
    [(_, noted_ms)] = await client.zrange(settings.keys.runs_ending(), 0, -1, withscores=True)
    await asyncio.sleep(SHORT_S * 12)
    await leases.start()
    assert await listed(client, settings) == [1, 1, 1]
    [(_, again_ms)] = await client.zrange(settings.keys.runs_ending(), 0, -1, withscores=True)
    assert again_ms > noted_ms + 1000 * settings.keep_unfinished_s / 2


async def test_a_run_that_was_deleted_or_lost_its_head_leaves_the_lists_at_its_time(client, settings, store, leases):
    await end(store, "deleted", keep_s=SHORT_S, tenant="t")
    await end(store, "beheaded", keep_s=SHORT_S, tenant="t")
    assert await store.delete("deleted")
    await client.delete(settings.keys.head("beheaded"))
    await leases.start()
    await until_listed(client, settings, 0, 0, 0)


async def test_a_head_that_somebody_has_given_no_end_holds_up_no_other(client, settings, store, leases):
    await end(store, "for ever", keep_s=SHORT_S, tenant="t")
    await client.persist(settings.keys.head("for ever"))
    await end(store, "gone", keep_s=SHORT_S, tenant="t")
    await asyncio.sleep(SHORT_S * 2)
    await leases.start()
    await until_listed(client, settings, 1, 1, 1)


async def test_a_tenant_may_be_called_whatever_it_likes(client, settings, store, leases):
    name = "a\0b\n:c"
    await end(store, "m", keep_s=SHORT_S, tenant=name)
    assert await listed(client, settings, name) == [1, 1, 1]
    await asyncio.sleep(SHORT_S * 2)
    await leases.start()
    assert await listed(client, settings, name) == [0, 0, 0]
