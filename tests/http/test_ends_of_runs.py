"""When the listening to a run ends, whatever stands in its stream."""

import asyncio

import pytest

from tests.run import machine
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.tail import Tail
from toolfleet.orchestrator.store.journal import Journal
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

WAIT_S = 20
JUNK = [{"e": "junk", "s": "x"}, {"x": b"\xff"}, {"e": b"\xff"}, {"e": ""}]


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as connected:
        yield connected


@pytest.fixture
async def journal(client, settings):
    store = RunStore(client, settings, Seal(settings))
    return Journal(store, await store.begin(machine.STARTED, owner="a"), "a")


@pytest.fixture
async def tail(client, settings):
    async with Tail(client, settings, max_frames=100, supervisor=Supervisor()) as running:
        yield running


async def heard(tail):
    async with asyncio.timeout(WAIT_S):
        return [frame.data async for frame in tail.listen("m")]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("times", [1, 300])
async def test_the_listening_to_an_ended_run_ends_though_junk_stands_behind_its_end(
    client, settings, journal, tail, junk, times
):
    await journal.append(machine.reply(0, 0))
    for _ in range(times):
        await client.xadd(settings.keys.run("m"), junk)
    assert len(await heard(tail)) == 2
    assert tail.listeners == 0


@pytest.mark.parametrize("junk", JUNK)
async def test_it_ends_too_where_end_and_junk_come_one_after_the_other(client, settings, journal, tail, junk):
    listening = asyncio.create_task(heard(tail))
    async with asyncio.timeout(WAIT_S):
        while not tail.listeners:
            await asyncio.sleep(0.01)
    pipeline = client.pipeline(transaction=True)
    await client.xadd(settings.keys.run("m"), junk)
    await journal.append(machine.reply(0, 0))
    for _ in range(300):
        pipeline.xadd(settings.keys.run("m"), junk)
    await pipeline.execute()
    assert len(await listening) == 2
