"""What is noted of batches: sealed, listed page by page, and true of one whose process is gone."""

import asyncio
import time

import pytest

from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.errors import CallerError
from toolfleet.orchestrator.errors import BadCursor, BatchNotFound, BatchNotOpen
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.store.batches import Batches, BatchRecord, BatchState
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def batches(client, settings):
    return Batches(client, settings, Seal(settings))


def record(number=0, **changes):
    return BatchRecord(batch_id=f"b{number:03}-abcdef", orchestrator_id="o", lines=9, **changes)


async def test_a_batch_whose_process_has_lost_its_lease_was_interrupted(client, settings, batches):
    await client.set(settings.keys.orchestrator("o"), "model")
    await batches.save(record())
    assert (await batches.load("b000-abcdef")).state is BatchState.RUNNING
    await client.delete(settings.keys.orchestrator("o"))
    assert (await batches.load("b000-abcdef")).state is BatchState.INTERRUPTED
    [listed] = (await batches.page(tenant="", limit=5)).batches
    assert listed.state is BatchState.INTERRUPTED
    await batches.save(record(state=BatchState.DONE))
    assert (await batches.load("b000-abcdef")).state is BatchState.DONE


async def test_pages_hold_each_batch_of_a_tenant_once_and_none_of_others(batches):
    for number in range(25):
        await batches.save(record(number, tenant="acme"))
        await batches.save(record(100 + number, tenant="other"))
    found, after = [], ""
    while True:
        page = await batches.page(tenant="acme", limit=10, after=after)
        found += [each.batch_id for each in page.batches]
        if not (after := page.after):
            break
    assert found == sorted(found, reverse=True)
    assert len(found) == 25
    with pytest.raises(BadCursor):
        await batches.page(tenant="acme", limit=10, after="garbage")
    with pytest.raises(BatchNotFound):
        await batches.load("b000-abcdef", tenant="other")


async def test_what_only_somebody_with_redis_has_written_is_no_batch(client, settings, batches):
    keys = settings.keys
    await batches.save(record(1))
    sealed = await client.get(keys.batch("b001-abcdef"))
    forged = {"copied": sealed, "made up": b'{"v":1}', "torn": sealed[:70], "bytes": b"\xff" * 200}
    for name, text in forged.items():
        await client.set(keys.batch(name), text)
        await client.zadd(keys.batches_of(""), {name: (time.time() + 1e4) * 1000})
        with pytest.raises(BatchNotFound):
            await batches.load(name)
    assert [each.batch_id for each in (await batches.page(tenant="", limit=3)).batches] == ["b001-abcdef"]
    await client.set(keys.batch_cancel("b001-abcdef"), b'[1,"attacker"]')
    assert await batches.save(record(1)) == ""


async def test_a_cancel_is_for_the_start_that_it_was_asked_of(client, settings, batches):
    await client.set(settings.keys.orchestrator("o"), "model")
    await batches.save(record())
    await batches.cancel("b000-abcdef", tenant="", by="ada")
    assert await batches.save(record()) == "ada"
    assert await batches.save(record(starts=2)) == ""
    await batches.save(record(state=BatchState.DONE))
    with pytest.raises(BatchNotOpen):
        await batches.cancel("b000-abcdef", tenant="", by="ada")


async def test_the_runs_of_a_batch_are_its_own_page_by_page_without_those_below_them(client, settings, batches):
    store, of_batch = RunStore(client, settings, Seal(settings)), record(tenant="acme")

    def started(run_id, tenant="acme"):
        terms = RunTerms(max_turns=9, tenant=tenant)
        return store.begin(machine.STARTED.model_copy(update={"run_id": run_id, "terms": terms}), owner="o")

    own = [f"b000-abcdef-{number:020x}" for number in range(230)]
    below = [f"{run_id}.1.{place}" for run_id in own[:60] for place in range(3)]
    others = ["b000-abcdef", "b000-abcdeg-" + "0" * 20, "b000-abcdef-short", "b000-abcde-" + "f" * 20]
    await asyncio.gather(*map(started, [*own, *below, *others]), started(f"b000-abcdef-{'f' * 20}", tenant="stranger"))
    found, after = [], ""
    while True:
        page = await batches.runs(of_batch, limit=50, after=after)
        found += [head.run_id for head in page.heads]
        if not (after := page.after):
            break
    assert found == own
    with pytest.raises(CallerError):
        await batches.runs(of_batch, limit=50, after="another-0000")
