"""What a lease does while its orchestrator sees to a store that came back older."""

import asyncio

import pytest

from tests.run import machine
from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator.store.leases import Leases
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

WAIT_S = 20


class Healing:
    """Takes as long as the test wants; the first time Redis goes away meanwhile."""

    def __init__(self):
        self.begun = asyncio.Semaphore(0)
        self.may_end = asyncio.Event()
        self.times = 0

    async def heal(self, suspicion):
        assert suspicion.is_certain
        self.times += 1
        self.begun.release()
        if self.times == 1:
            raise StoreUnreachable("away")
        await self.may_end.wait()


@pytest.fixture
async def adopted():
    return asyncio.Queue()


@pytest.fixture
async def healing():
    return Healing()


@pytest.fixture
async def leases(client, settings, adopted, healing):
    quick = settings.model_copy(update={"heartbeat_s": 0.05})
    leases = Leases(
        client,
        quick,
        "a",
        model="m",
        on_adopted=adopted.put_nowait,
        supervisor=Supervisor(),
        on_older_store=healing.heal,
    )
    await leases.start()
    yield leases
    async with asyncio.timeout(WAIT_S):
        await leases.aclose()


async def renewed(client, settings, *, times=3):
    """Return once the lease was renewed so many times."""
    first = int(await client.get(settings.keys.beat("a")) or 0)
    while int(await client.get(settings.keys.beat("a")) or 0) < first + times:
        await asyncio.sleep(0.01)


async def test_a_lease_is_renewed_and_no_run_taken_over_while_the_store_is_healed(
    client, settings, leases, healing, adopted
):
    await RunStore(client, settings, Seal(settings)).begin(machine.STARTED)
    async with asyncio.timeout(WAIT_S):
        assert await adopted.get() == ["m"]
        await client.delete(settings.keys.beat("a"))  # as in a store that has lost it
        for _ in range(2):
            await healing.begun.acquire()
        await client.sadd(settings.keys.unowned("m"), "m")
        await renewed(client, settings)
        assert adopted.empty()
        healing.may_end.set()
        assert await adopted.get() == ["m"]


async def test_a_healing_that_does_not_end_keeps_nobody_from_stopping(client, settings, leases, healing):
    async with asyncio.timeout(WAIT_S):
        await renewed(client, settings, times=1)
        await client.delete(settings.keys.beat("a"))
        for _ in range(2):
            await healing.begun.acquire()
        await leases.aclose()
    assert not await client.exists(settings.keys.orchestrator("a"))
