"""Whatever stands in Redis under our keys: who reads it goes on, and says that it was there."""

from __future__ import annotations

import asyncio
import logging
import time

import orjson
import pytest
from fleets import asking, fleet_of

from tests.http.fleet_of_doors import api_of
from toolfleet import FunctionModel
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.skipped import skipped
from toolfleet.wire import Seal

WAIT_S = 20
JUNK = [b"", b"\xff\xfe\x00", b"junk", b"[]", b"{}", b"null", b'{"v":99}', b'"\\ud800"', b"x" * 300_000]


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "long": 1}, lease_s=3, heartbeat_s=0.5) as running:
        yield running


@pytest.fixture
async def orchestrator(fleet):
    model = FunctionModel(lambda messages: AssistantMessage(content="said"))
    async with Orchestrator(model, settings=fleet.settings) as running:
        yield running


async def still_works(orchestrator):
    async with asyncio.timeout(WAIT_S):
        [answer] = await orchestrator.execute(asking(("echo", {"value": "heard"})))
        assert answer.content == "heard"
        assert (await orchestrator.run("Anybody there?")).answer == "said"
        assert len(await orchestrator.runs()) > 0
    assert not orchestrator.ailing


async def test_junk_in_the_reply_stream_is_passed_over_in_one_line_of_the_log(fleet, client, orchestrator, caplog):
    replies = fleet.settings.keys.replies(orchestrator.orchestrator_id)
    before = skipped().get("reply", 0)
    entries = [{name: junk} for name in (b"run", b"c", b"r", b"p", b"s", b"\xff", b"new") for junk in JUNK]
    entries += [{b"c": b"a.1.0", b"r": junk, b"later": b"field"} for junk in JUNK]
    with caplog.at_level(logging.WARNING, "toolfleet"):
        for entry in entries:
            await client.xadd(replies, entry)
        await still_works(orchestrator)
    assert skipped()["reply"] > before + len(JUNK)
    told = [record for record in caplog.records if getattr(record, "event", "") == "record_skipped"]
    assert len([record for record in told if record.facts["kind"] == "reply"]) <= 1


async def test_an_id_at_the_end_of_time_does_not_deafen_an_orchestrator(fleet, client, orchestrator):
    replies = fleet.settings.keys.replies(orchestrator.orchestrator_id)
    before = skipped().get("reply", 0)
    await client.delete(replies)
    await client.xadd(replies, {"c": "x", "r": "y"}, id="18446744073709551615-18446744073709551614")
    async with asyncio.timeout(WAIT_S):
        while skipped().get("reply", 0) == before:
            await asyncio.sleep(0.02)
    call = asyncio.create_task(orchestrator.call("echo", {"value": "heard"}))
    assert (await call).content == "heard"
    heard = await client.xrange(replies)
    assert all(int(entry_id.split(b"-")[0]) < 1 << 50 for entry_id, _ in heard)


async def test_junk_among_workers_orchestrators_and_runs_stops_nobody(fleet, client, orchestrator):
    keys, now = fleet.settings.keys, time.time()
    for number, junk in enumerate(JUNK):
        for listed, record in (
            (keys.workers(), keys.worker(f"junk{number}")),
            (keys.orchestrators(), keys.orchestrator(f"junk{number}")),
            (keys.runs(), keys.head(f"junk{number}")),
        ):
            await client.zadd(listed, {f"junk{number}": now, junk[:50]: now})
            await client.set(record, junk, ex=60)
        await client.set(keys.orchestrator_proofs(f"junk{number}"), junk, ex=60)
        await client.sadd(keys.unowned("function"), f"junk{number}", junk[:50])
    for number, junk in enumerate(JUNK):  # a head of the right type, with the wrong fields
        await client.delete(keys.head(f"junk{number}"))
        await client.hset(keys.head(f"junk{number}"), mapping={"state": junk[:50], "turn": junk[:50], "new": "field"})
        await client.pexpire(keys.head(f"junk{number}"), 60_000)
    await asyncio.sleep(2 * 1.0)  # leases are looked at, announcements read again
    await still_works(orchestrator)
    worker = fleet.start_worker("io")  # one that joins reads them all
    try:
        await asyncio.to_thread(fleet.wait_until_ready)
    finally:
        fleet.workers.remove(worker)
        worker.process.terminate()
        worker.process.wait()


async def test_an_announcement_of_a_newer_or_an_unknown_worker_fails_no_run_and_no_request(fleet, client):
    keys = fleet.settings.keys
    async with api_of(fleet.settings, FunctionModel(lambda messages: AssistantMessage(content="said"))) as api:
        for junk in (orjson.dumps({"v": 1, "worker": "newer@host", "newest": 1}), *JUNK):
            await client.zadd(keys.workers(), {"newer@host": time.time() + 5})
            await client.set(keys.worker("newer@host"), junk, ex=5)
            await asyncio.sleep(0.05)
            for path in ("/v1/tools", "/v1/workers", "/readyz", "/healthz"):
                assert (await api.client.get(path)).status_code == 200
        await api.ended(await api.begin("Anybody there?"))


async def test_a_call_whose_records_are_junk_is_told_of_all_the_same(fleet, client, orchestrator):
    keys = fleet.settings.keys
    submitted = await orchestrator.call("wait", {"seconds": 1}, patience_s=0)
    seal, key = Seal(fleet.settings), keys.handle(submitted.handle)
    record = orjson.loads(seal.open_kept(await client.get(key), key))
    call_id = record["call_id"]
    newer = orjson.dumps({**record, "of_a_newer_version": 1})
    await client.set(key, seal.close_kept(newer, key), ex=60)
    for junk in JUNK:
        await client.set(keys.progress(call_id), junk, ex=60)
        await client.set(keys.result(call_id), junk, ex=60)
        assert (await orchestrator.task(submitted.handle)).result is None
    await client.delete(keys.result(call_id), keys.progress(call_id))
    assert (await orchestrator.task(submitted.handle, wait_s=WAIT_S)).result.type == "returned"


async def test_junk_in_a_run_s_stream_does_not_end_the_listening_to_other_runs(fleet, client):
    keys = fleet.settings.keys

    def said(messages):
        if isinstance(messages[-1], ToolMessage):
            return AssistantMessage(content="said")
        return asking(("wait", {"seconds": 2}))

    async with api_of(fleet.settings, FunctionModel(said)) as api:
        run_id, spoilt = await api.begin("Anybody there?"), await api.begin("Or here?")
        listening = asyncio.create_task(api.events(run_id))
        to_spoilt = asyncio.create_task(api.events(spoilt))
        while api.door.tail.runs < 2:
            await asyncio.sleep(0.01)
        for junk in JUNK:
            for name in (b"e", b"\xff", b"new"):
                await client.xadd(keys.run(spoilt), {name: junk})
        await client.xadd(keys.run(spoilt), {"e": b'{"type":"a\\nid: 9"}'})
        await asyncio.sleep(0.3)
        assert (await api.client.get("/healthz")).status_code == 200
        async with asyncio.timeout(WAIT_S):
            assert [(await each)[-1][1] for each in (listening, to_spoilt)] == ["model_replied"] * 2


async def test_health_names_a_listener_that_is_down_until_it_hears_again(fleet, client, monkeypatch):
    async with api_of(fleet.settings, FunctionModel(lambda messages: AssistantMessage(content="said"))) as api:
        door = api.door
        down = RuntimeError("nobody foresaw it")

        def hear(run_id):
            raise down

        # The one bug that is made up here: what follows from it is real.
        monkeypatch.setattr(type(door.orchestrator._services.runs), "notify", lambda self, run_id: hear(run_id))
        replies = fleet.settings.keys.replies(door.orchestrator.orchestrator_id)
        for path in ("/healthz", "/readyz"):
            await client.xadd(replies, {"run": "any"})
            async with asyncio.timeout(WAIT_S):
                while (answer := await api.client.get(path)).status_code == 200:
                    await asyncio.sleep(0.01)
            assert answer.status_code == 503
            assert answer.json()["listeners"] == ["replies"]
            assert "nobody foresaw it" in answer.json()["detail"]
            async with asyncio.timeout(WAIT_S):
                while (await api.client.get(path)).status_code != 200:
                    await asyncio.sleep(0.05)
        monkeypatch.undo()
        await api.ended(await api.begin("Anybody there?"))
        figures = (await api.client.get("/metrics")).text
        assert 'toolfleet_task_failures_total{what="replies"}' in figures
