"""A secret that a model passed to a tool is in no log, event, inspection or key of Redis once its call has ended."""

import asyncio
import base64
import contextlib
import json

import pytest
from fleets import HERE
from processes import replenish
from stages import stage_of_its_own

from toolfleet.broker import celery_app
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet

SECRET = "correct-horse-battery"
LOGIN = {"user": "u", "password": SECRET}
KINDS = {"asyncio": "8", "prefork": "2"}


@pytest.fixture(scope="module", params=KINDS)
def fleet(request):
    with LocalFleet(
        ["effect_tools"],
        pools={"io": 1},
        environment=HERE,
        log_level="debug",
        worker_options=["--events", "--kind", request.param, "--concurrency", KINDS[request.param]],
        lease_s=3.0,
        heartbeat_s=0.5,
        max_deliveries=1,
        max_argument_bytes=500,
    ) as running:
        running.kind = request.param
        yield running


@contextlib.asynccontextmanager
async def all_that_is_published(settings):
    """Everything on every channel, Celery's events and the answers to inspections among it."""
    heard = []
    async with connect_async(settings) as client, client.pubsub() as channels:
        await channels.psubscribe("*")

        async def listen():
            async for message in channels.listen():
                heard.append(readable(message["data"]))  # noqa: PERF401  # what was heard so far counts too

        listening = asyncio.create_task(listen())
        yield heard
        assert not listening.done(), listening
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


def readable(data):
    """What is published, with the body that kombu wraps in base64 unwrapped."""
    if not isinstance(data, bytes) or b'"base64"' not in data:
        return repr(data)
    return repr(data) + repr(base64.b64decode(json.loads(data)["body"]))


async def until_nothing_waits(post):
    async with asyncio.timeout(20):
        while any([await post.client.xlen(post.keys.queue("io", level)) for level in range(10)]):  # Redis tells nobody
            await asyncio.sleep(0.01)


async def all_that_is_stored(client):
    """Every key with what it holds, as Redis itself would hand it to another server."""
    stored = []
    async for key in client.scan_iter(count=1000):
        if await client.type(key) == b"stream":
            stored.append(repr((key, await client.xrange(key))))
        else:
            stored.append(repr((key, await client.dump(key))))
    return stored


async def test_a_secret_stays_between_the_model_and_the_tool(fleet, post):
    inspect = celery_app(fleet.settings).control.inspect(timeout=20, limit=1)
    async with stage_of_its_own() as stage, all_that_is_published(fleet.settings) as published:
        running = post.call("log_in", {"stage": stage.path, "login": LOGIN})
        post.send(running)
        actor = await stage.enters()
        seen = [await asyncio.to_thread(look) for look in (inspect.active, inspect.reserved, inspect.stats)]
        assert running.call_id in repr(seen[0])
        actor.returns()
        await post.result()

        post.send(post.call("log_in_and_fail", {"login": LOGIN}))
        post.send(post.call("log_in", {"stage": stage.path, "login": {"user": 1, "password": [SECRET]}}))
        post.send(post.call("log_in", {"stage": stage.path, "login": {"user": SECRET * 50, "password": SECRET}}))
        post.send_text(post.seal.close_call(running)[0], "unsigned", running)
        results = [repr(await post.result()) for _ in range(3)]
        letters = [await post.letter()]
        await until_nothing_waits(post)  # a killed worker leaves to others what it has not acknowledged yet
        assert any("at most 500 are taken" in result for result in results)

        post.send(post.call("log_in_and_die", {"login": LOGIN}))
        if fleet.kind == "asyncio":
            await asyncio.to_thread(fleet.workers[0].process.wait, 20)  # the tool was a thread of the worker
            replenish(fleet, io=1)
        results.append(repr(await post.result()))
        letters.append(await post.letter())
        assert [letter["reason"] for letter in letters] == [b"unsigned or altered", b"crashed"]
        assert json.loads(json.loads(letters[1]["text"])["arguments"])["login"] == {"user": "u", "password": "***"}
        stored = await all_that_is_stored(post.client)

    logs = [worker.log_path.read_text() for worker in fleet.workers]
    everything = {"inspected": seen, "results": results, "published": published, "stored": stored, "logged": logs}
    assert any("log_in" in text for text in published), "nothing was heard"
    assert any("task-received" in text for text in published), "no events were heard"
    assert any('"level":"debug"' in text.replace(" ", "") for text in logs), "nothing was logged"
    assert [where for where, texts in everything.items() if SECRET in repr(texts)] == []
