"""Calls of workers that speak plain HTTP with the API: poll, ack, result, and what else they say in between."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.work.remote import Remote, calling, offered, spec
from toolfleet.calls import Failed, FailureKind, Returned, ToolCall
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.wire import Seal


@pytest.fixture
async def laptop(api):
    """A worker with a key for the tools `a` and `b`."""
    key, _ = await api.door.keyring.add("laptop", scopes=(Scope.WORK,), tools=("a", "b"))
    worker = Remote(api.url, key)
    yield worker
    await worker.http.aclose()


async def begun(api, worker, tool="a", **more):
    """A call that a worker has begun: it, the offer, and the attempt."""
    assert (await worker.announce(spec(tool, **more))).status_code == 200
    await offered(api, tool)
    call = calling(api, tool)
    [offer] = await worker.poll()
    return call, offer, await worker.begin(offer)


async def test_X5_a_call_is_polled_acknowledged_and_answered_over_http(api, laptop):
    announced = await laptop.announce(spec("a", effect="read_only"), concurrency=2)
    assert announced.status_code == 200, announced.text
    await offered(api, "a")
    call = calling(api, "a", text="9007199254740993 ünïcödé 🐙")
    [offer] = await laptop.poll()
    assert offer["call"]["arguments"] == '{"text":"9007199254740993 ünïcödé 🐙"}'
    attempt = await laptop.begin(offer)
    assert (await laptop.beat(attempt)).json()["held"] == [offer["call"]["call_id"]]
    result = {"type": "returned", "content": "ünïcödé 🐙", "state": {"id": 9007199254740993}}
    settled = await laptop.say("result", attempt=attempt, result=result)
    assert settled.json() == {"v": 1, "call_id": offer["call"]["call_id"], "repeated": False}
    result = await call
    assert result == Returned(content="ünïcödé 🐙", state={"id": 9007199254740993})
    assert result.attempt.worker.startswith("laptop@work.")


async def test_X5_a_result_that_is_sent_twice_counts_once_and_another_one_is_refused(api, laptop):
    call, offer, attempt = await begun(api, laptop)
    assert await laptop.begin(offer) != ""  # an answer that was lost is asked for again
    assert (await laptop.returned(attempt)).json()["repeated"] is False
    assert await call == Returned(content="done")
    assert (await laptop.returned(attempt)).json()["repeated"] is True
    other = await laptop.returned(attempt, "something else")
    assert (other.status_code, other.json()["type"]) == (409, "urn:toolfleet:problem:other-result")
    assert (await laptop.beat(attempt)).json()["lost"] == [offer["call"]["call_id"]]
    for late in ("ack", "progress"):
        said = {"offer": offer["offer"]} if late == "ack" else {"attempt": attempt, "fraction": 0.5}
        assert (await laptop.say(late, **said)).status_code == 409


async def test_X5_what_was_given_back_is_anothers_and_the_first_attempt_is_refused(api, laptop):
    call, offer, attempt = await begun(api, laptop, effect="once")
    assert (await laptop.say("release", worker="laptop", attempts=[attempt])).json()["released"] == 1
    [again] = await laptop.poll()
    assert again["call"]["attempt"] == 1  # by its word no effect had begun
    second = await laptop.begin(again)
    stale = await laptop.returned(attempt, "from the first")
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:toolfleet:problem:stale-attempt")
    assert (await laptop.beat(attempt, second)).json()["held"] == [offer["call"]["call_id"]]
    await laptop.returned(second, "from the second")
    assert await call == Returned(content="from the second")


async def test_X4_a_call_of_another_version_is_passed_on_and_offered_to_nobody(settings, laptop):
    assert (await laptop.announce(spec("a"))).status_code == 200
    record = {"v": 2, "call_id": "x-1.1.0", "run_id": "x-1", "tool": "a", "reply_to": "x", "deadline_unix_s": 4e9}
    text = json.dumps({**record, "arguments": {"of": "another shape"}})
    body = json.dumps([[text, Seal(settings)._sign(b"toolfleet.call\0", text.encode())], {}, {}], separators=(",", ":"))
    headers, stream = {"task": "a", "id": "x-1.1.0", "contract": ""}, settings.keys.queue("work.a", 3)
    async with connect_async(settings) as client:
        await client.xadd(stream, {"b": body, "h": json.dumps(headers), "p": "{}", "id": "x-1.1.0"})
        assert await laptop.poll(wait_s=1) == []
        assert await client.xpending(stream, "workers") == {"pending": 0, "min": None, "max": None, "consumers": []}
        assert await client.zcard(settings.keys.scheduled("work.a")) == 1  # for who reads that version
        assert await client.xlen(settings.keys.dead_letters()) == 0


async def test_U5_a_call_of_another_version_of_its_tool_goes_to_the_worker_that_serves_it(api, settings, laptop):
    older = Remote(api.url, laptop.http.headers["authorization"].split()[1], "older")
    assert (await laptop.announce(spec("a", version=2))).status_code == 200
    assert (await older.announce(spec("a", version=1))).status_code == 200
    call = ToolCall(
        call_id="v-1.1.0", run_id="v-1", tool="a", arguments="{}", deadline_unix_s=4e9, reply_to="x", version=1
    )
    body = json.dumps([[*Seal(settings).close_call(call)], {}, {}], separators=(",", ":"))
    headers = {"task": "a", "id": call.call_id, "contract": ""}
    async with connect_async(settings) as client:
        await client.xadd(
            settings.keys.queue("work.a", 3), {"b": body, "h": json.dumps(headers), "p": "{}", "id": call.call_id}
        )
        assert await laptop.poll(wait_s=1) == []
        [offer] = await older.poll()
        await older.returned(await older.begin(offer), "by version 1")
        sealed = await client.get(settings.keys.result(call.call_id))
    assert Seal(settings).open_result(sealed, call.call_id).content == "by version 1"
    await older.http.aclose()


async def test_X5_an_effect_that_may_have_begun_is_in_doubt_for_the_next_one(api, laptop):
    call, _, attempt = await begun(api, laptop, effect="once")
    await laptop.say("release", worker="laptop", attempts=[attempt], begun=True)
    assert await laptop.poll(wait_s=1) == []
    result = await call
    assert isinstance(result, Failed)
    assert result.kind is FailureKind.IN_DOUBT


async def test_X5_what_is_not_acknowledged_goes_back_uncounted(api, laptop, monkeypatch):
    monkeypatch.setattr("toolfleet.workers.gateway.sweeping.ACK_WITHIN_S", 1.0)
    await laptop.announce(spec("a", effect="once"))
    await offered(api, "a")
    call = calling(api, "a")
    [lost] = await laptop.poll()
    [offer] = await laptop.poll()
    assert (offer["call"]["call_id"], offer["call"]["attempt"]) == (lost["call"]["call_id"], 1)
    attempt = await laptop.begin(offer)
    assert (await laptop.say("ack", offer=lost["offer"])).status_code == 409
    await laptop.returned(attempt)
    assert await call == Returned(content="done")


async def test_X5_a_worker_that_leaves_gives_back_what_it_was_offered_and_is_announced_no_more(api, laptop):
    await laptop.announce(spec("a"))
    await offered(api, "a")
    call = calling(api, "a")
    await laptop.poll()
    assert (await laptop.say("release", worker="laptop", leaves=True)).status_code == 200
    unknown = await laptop.say("poll", worker="laptop")
    assert (unknown.status_code, unknown.json()["type"]) == (412, "urn:toolfleet:problem:not-announced")
    laptop.name = "another"
    await laptop.announce(spec("a"))
    [offer] = await laptop.poll()
    assert offer["call"]["attempt"] == 1
    await laptop.returned(await laptop.begin(offer))
    assert await call == Returned(content="done")


async def test_X5_a_cancelled_call_is_told_of_with_the_next_heartbeat(api, laptop):
    call, offer, attempt = await begun(api, laptop, long_running=True, patience_s=0.1)
    submitted = await call
    cancelling = asyncio.create_task(api.door.orchestrator.cancel_task(submitted.handle))
    async with asyncio.timeout(10):
        while not (beaten := (await laptop.beat(attempt)).json())["cancelled"]:
            await asyncio.sleep(0.02)
    assert beaten["held"] == beaten["cancelled"] == [offer["call"]["call_id"]]
    ended = {"type": "failed", "kind": "cancelled", "message": "a was cancelled."}
    assert (await laptop.say("result", attempt=attempt, result=ended)).status_code == 200
    assert (await cancelling).result.kind is FailureKind.CANCELLED


async def test_X5_progress_and_a_checkpoint_reach_who_waits_and_who_goes_on(api, laptop):
    call, _, attempt = await begun(api, laptop, effect="idempotent", long_running=True, patience_s=0.1)
    submitted = await call
    assert (await laptop.say("progress", attempt=attempt, fraction=0.5, message="half 🐙")).status_code == 204
    assert (await laptop.say("checkpoint", attempt=attempt, data={"at": 9007199254740993})).status_code == 204
    async with asyncio.timeout(10):
        while (await api.door.orchestrator.task(submitted.handle)).progress is None:
            await asyncio.sleep(0.02)
    await laptop.say("release", worker="laptop", attempts=[attempt], begun=True)
    [again] = await laptop.poll()
    assert (again["call"]["attempt"], again["call"]["checkpoint"]) == (2, {"at": 9007199254740993})
    await laptop.returned(await laptop.begin(again))


GARBAGE = [
    ("poll", {"v": 2, "anything": []}, 400, "contract-version"),
    ("announce", {"v": 2}, 400, "contract-version"),
    ("announce", {"worker": "laptop", "tools": []}, 422, "invalid-request"),
    ("announce", {"worker": "../..", "tools": [spec("a")]}, 422, "invalid-request"),
    ("announce", {"worker": "laptop", "tools": [spec("a", input_schema={"type": 7})]}, 422, "invalid-tool"),
    ("announce", {"worker": "laptop", "tools": [spec("a"), spec("a")]}, 422, "invalid-tool"),
    ("poll", {"worker": "laptop"}, 412, "not-announced"),
    ("ack", {"offer": "garbage"}, 404, "not-your-call"),
    ("result", {"attempt": "é\u202e", "result": {"type": "returned", "content": ""}}, 404, "not-your-call"),
    ("result", {"attempt": "x" * 100_000, "result": {"type": "unheard"}}, 422, "invalid-request"),
    ("heartbeat", {"worker": "laptop", "attempts": ["Zm9yZ2Vk"]}, 404, "not-your-call"),
    ("release", {"worker": "laptop", "attempts": ["Zm9yZ2Vk"]}, 404, "not-your-call"),
]


async def test_X5_what_cannot_be_meant_is_answered_with_a_problem(laptop):
    for what, said, status, kind in GARBAGE:
        answer = await laptop.say(what, **said)
        told = answer.status_code, answer.json()["type"]
        assert told == (status, f"urn:toolfleet:problem:{kind}"), answer.text


async def test_X5_whatever_is_said_twice_has_happened_once(api, laptop):
    told = {"worker": "laptop", "tools": [spec("a", effect="once")]}
    first, second = await asyncio.gather(laptop.say("announce", **told), laptop.say("announce", **told))
    assert (first.status_code, second.status_code) == (200, 200), first.text + second.text
    await offered(api, "a")
    call = calling(api, "a")
    once, twice = await asyncio.gather(laptop.poll(wait_s=2), laptop.poll(wait_s=2))
    [offer] = once + twice  # offered to one of them
    attempts = await asyncio.gather(*(laptop.begin(offer) for _ in range(5)))
    given_back = {"worker": "laptop", "attempts": [attempts[0]]}
    back = await asyncio.gather(*(laptop.say("release", **given_back) for _ in range(3)))
    assert sum(answer.json().get("released", 0) for answer in back) == 1, [answer.text for answer in back]
    [offer] = await laptop.poll()
    assert offer["call"]["attempt"] == 1
    attempt = await laptop.begin(offer)
    settled = await asyncio.gather(*(laptop.returned(attempt) for _ in range(5)))
    assert sorted(answer.json()["repeated"] for answer in settled) == [False, True, True, True, True]
    assert await call == Returned(content="done")
    for _ in range(2):
        left = await laptop.say("release", worker="laptop", leaves=True)
        assert left.status_code == 200, left.text


async def test_X5_a_field_that_is_not_known_is_not_looked_at(api, laptop):
    answer = await laptop.announce(spec("a", of_a_newer_version=1), more=2)
    assert answer.status_code == 200, answer.text
    await offered(api, "a")


async def test_X5_a_result_over_the_limit_is_refused_and_the_call_is_still_the_workers(api, laptop):
    call, _, attempt = await begun(api, laptop)
    large = await laptop.returned(attempt, "x" * (5 * 1024 * 1024))
    assert (large.status_code, large.json()["type"]) == (413, "urn:toolfleet:problem:body-too-large")
    assert (await laptop.returned(attempt, "less")).status_code == 200
    assert await call == Returned(content="less")


async def test_X5_a_call_begun_at_one_server_is_ended_at_another(api, laptop, settings):
    from tests.http.fleet_of_doors import api_of

    call, _, attempt = await begun(api, laptop)
    async with api_of(settings) as other:
        elsewhere = Remote(other.url, laptop.http.headers["authorization"].removeprefix("Bearer "))
        assert len((await elsewhere.beat(attempt)).json()["held"]) == 1
        assert (await elsewhere.returned(attempt, "from there")).status_code == 200
        await elsewhere.http.aclose()
    assert (await laptop.returned(attempt, "from there")).json()["repeated"] is True
    assert await call == Returned(content="from there")
