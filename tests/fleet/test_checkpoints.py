"""A long call whose worker is lost goes on where it was."""

import asyncio
import json

import pytest
from fleets import HERE
from post import Post
from processes import ask_to_stop, kill, replenish, worker_of

from toolfleet.local.fleet import LocalFleet

POOL = {"count_to": "io", "count_on_thread": "io", "count_in_process": "cpu"}
POOLS = {"io": 2, "cpu": 1, "long": 2}


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["effect_tools"], pools=POOLS, environment=HERE, lease_s=3.0, heartbeat_s=0.5, shutdown_grace_s=0.2
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    replenish(fleet, **POOLS)
    post = Post(fleet.settings)
    yield post
    await post.aclose()


async def until_kept(post, call_id, data):
    """Wait for a checkpoint."""
    key = post.keys.checkpoint(call_id)
    async with asyncio.timeout(20):
        while (sealed := await post.client.get(key)) is None or post.seal.open_checkpoint(
            sealed, call_id
        ) != data:  # Redis tells nobody
            await asyncio.sleep(0.01)
    assert 0 < await post.client.ttl(key) <= 60 + 600


async def until_forgotten(post, call_id):
    async with asyncio.timeout(20):
        while await post.client.exists(post.keys.checkpoint(call_id)):  # Redis tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tool", POOL)
async def test_the_attempt_after_a_loss_goes_on_from_the_newest_checkpoint_under_the_same_key(fleet, post, stage, tool):
    call = post.call(tool, {"stage": stage.path, "goal": 1000})
    post.send(call, queue=POOL[tool])
    first = await stage.enters()
    await until_kept(post, call.call_id, {"at": 1000})
    kill(worker_of(fleet, first.pid))
    replenish(fleet, **POOLS)
    second = await stage.enters()
    assert second.seen["attempt"] == 2
    second.returns("done")
    _, returned = await post.result()
    assert json.loads(returned.content) == [call.call_id, {"at": 1000}, "done"]
    await until_forgotten(post, call.call_id)


async def test_a_long_call_that_a_stopping_worker_hands_back_goes_on_too(fleet, post, stage):
    call = post.call("count_for_long", {"stage": stage.path, "goal": 3})
    post.send(call, queue="long")
    first = await stage.enters()
    await until_kept(post, call.call_id, {"at": 3})
    worker = worker_of(fleet, first.pid)
    ask_to_stop(worker)
    (await stage.enters()).returns("done")
    _, returned = await post.result()
    assert json.loads(returned.content) == [call.call_id, {"at": 3}, "done"]
    await until_forgotten(post, call.call_id)
    assert await asyncio.to_thread(worker.process.wait, 20) == 0


async def test_a_checkpoint_that_somebody_else_wrote_is_not_believed(fleet, post, stage):
    call = post.call("count_to", {"stage": stage.path, "goal": 1})
    post.send(call)
    first = await stage.enters()
    await until_kept(post, call.call_id, {"at": 1})
    await post.client.set(post.keys.checkpoint(call.call_id), b"0" * 64 + b'{"at":99}', ex=60)
    kill(worker_of(fleet, first.pid))
    (await stage.enters()).returns("done")
    _, returned = await post.result()
    assert json.loads(returned.content) == [call.call_id, {"at": 0}, "done"]


async def test_a_checkpoint_too_large_fails_the_call_and_names_the_limit(post):
    post.send(post.call("remember_too_much"))
    _, failed = await post.result()
    assert "has 70002 bytes, and at most 65536 are kept" in failed.message
