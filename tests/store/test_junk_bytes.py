"""Bytes that are no text, in everything that has a name in Redis: whoever reads it goes on with the rest."""

import pytest
from pydantic import SecretStr

from tests.run import machine
from toolfleet.orchestrator.doors.http.key_store import Keyring
from toolfleet.orchestrator.status.sealed_before import sealed_before
from toolfleet.orchestrator.store.leases import living
from toolfleet.orchestrator.store.resealing import Resealing
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import new_secret
from toolfleet.supervision import Supervisor, failures
from toolfleet.wire import Seal

WAIT_S = 20
ODD = b"\xff"
RUN, OWNER = "m", "a"


async def spoil_listed_run(client, keys):
    await client.zadd(keys.runs(), {"spoilt": 1})
    await client.set(keys.run("spoilt"), ODD)


async def spoil_lease(client, keys):
    await client.zadd(keys.orchestrators(), {"odd": 1e15})
    await client.set(keys.orchestrator("odd"), ODD)


SPOILT = {
    "a run's id": lambda c, keys: c.zadd(keys.runs(), {ODD: 1}),
    "an owned run's id": lambda c, keys: c.sadd(keys.owned(OWNER), ODD),
    "an orchestrator's id": lambda c, keys: c.zadd(keys.orchestrators(), {ODD: 1e15}),
    "an orchestrator's model": spoil_lease,
    "a field of an entry": lambda c, keys: c.xadd(keys.run(RUN), {ODD: ODD}),
    "a seal": lambda c, keys: c.xadd(keys.run(RUN), {"e": ODD, "s": ODD}),
    "a field of a head": lambda c, keys: c.hset(keys.head(RUN), ODD, ODD),
    "a second seal": lambda c, keys: c.hset(keys.head(RUN), "vouched", ODD),
    "an owner": lambda c, keys: c.hset(keys.head(RUN), "owner", ODD),
    "a key's digest": lambda c, keys: c.hset(keys.api_keys(), ODD, ODD),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_every_reader_finds_what_is_ours_beside_bytes_that_are_no_text(client, settings, spoil):
    store = RunStore(client, settings, Seal(settings))
    started = machine.STARTED.model_copy(update={"run_id": RUN, "orchestrator_id": OWNER})
    await store.begin(started, owner=OWNER)
    keyring = Keyring(client, settings, Seal(settings))
    _, key = await keyring.add("ours")
    await spoil(client, settings.keys)
    assert RUN in await store.run_ids()
    assert RUN in await store.owned(OWNER)
    assert RUN in [head.run_id for head in await store.heads()]
    assert await store.named(RUN) == RUN
    assert (await store.load(RUN)).owner == OWNER
    assert await keyring.all() == [key]
    await living(client, settings)


ALSO_SPOILT = SPOILT | {"a run's stream, which is none": spoil_listed_run}


@pytest.mark.parametrize("spoil", ALSO_SPOILT.values(), ids=ALSO_SPOILT)
async def test_a_change_of_the_secret_comes_to_its_end_beside_bytes_that_are_no_text(client, settings, spoil):
    both = settings.model_copy(update={"secret": SecretStr(new_secret()), "previous_secret": settings.secret})
    await RunStore(client, settings, Seal(settings)).begin(machine.STARTED, owner=OWNER)
    await spoil(client, settings.keys)
    supervisor, failed_before = Supervisor(), dict(failures())
    resealing = Resealing(RunStore(client, both, Seal(both)), both, supervisor)
    resealing.start()
    await resealing._kept.ended(within_s=WAIT_S)
    assert resealing._kept._task.done()
    assert not supervisor.ailing
    assert dict(failures()) == failed_before
    alone = both.model_copy(update={"previous_secret": SecretStr("")})
    assert (await RunStore(client, alone, Seal(alone)).load(RUN)).run.run_id == RUN


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_what_the_old_secret_has_sealed_is_counted_beside_bytes_that_are_no_text(client, settings, spoil):
    both = settings.model_copy(update={"secret": SecretStr(new_secret()), "previous_secret": settings.secret})
    await Keyring(client, settings, Seal(settings)).add("ours")
    await spoil(client, settings.keys)
    assert (await sealed_before(client, both))["API keys"] == 1
