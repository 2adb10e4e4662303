"""What somebody does to live workers who may write to Redis and has not the secret."""

import asyncio
import base64
import json
import time
import zlib
from pathlib import Path

import psutil
import pytest
from fleets import fleet_of
from post import NOTHING
from processes import lines, until_announced

from toolfleet.broker import celery_app
from toolfleet.calls import Returned
from toolfleet.errors import Refused
from toolfleet.remote_control import QUESTIONS, QUESTIONS_AT_ONCE, SIGNED, VALID_S, BeforeItsTime, Guard
from toolfleet.settings import new_secret
from toolfleet.wire import Seal

SERVING = {"asyncio": ("io", "echo"), "prefork": ("cpu", "blocking_echo")}
BOX = "celery.pidbox"
REPLIES = "reply.celery.pidbox"
MB = 1_000_000


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "cpu": 1}) as running:
        yield running


@pytest.fixture
def app(fleet):
    app = celery_app(fleet.settings)
    yield app
    app.close()


def fanout(said, **changes):
    body = base64.b64encode(said if isinstance(said, bytes) else json.dumps(said).encode()).decode()
    properties = {"body_encoding": "base64", "delivery_info": {"exchange": BOX, "routing_key": ""}}
    message = {"body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": {}}
    return json.dumps({**message, "properties": properties, **changes})


async def shout(post, text):
    """Publish to all workers. Returns once each of them has refused it."""
    refused = await post.counted("refused_broadcasts")
    await post.client.publish(f"/0:{post.settings.namespace}.{BOX}", text)
    async with asyncio.timeout(10):
        while await post.counted("refused_broadcasts") < refused + len(SERVING):
            await asyncio.sleep(0.05)


async def told_by_all(app, fleet, question):
    """What Celery's own question brings from every worker; asked again where one has not answered at once."""
    async with asyncio.timeout(20):
        while True:
            told = await asyncio.to_thread(getattr(app.control.inspect(timeout=0.4), question)) or {}
            if len(told) == len(fleet.workers):
                return told


def memory_bytes(fleet):
    parents = [psutil.Process(worker.pid) for worker in fleet.workers]
    return sum(each.memory_info().rss for parent in parents for each in (parent, *parent.children(recursive=True)))


def alive(fleet):
    return all(worker.is_running for worker in fleet.workers)


TYPED = {
    "a_decimal": {"__type__": "decimal", "__value__": "x"},
    "a_date": {"__type__": "datetime", "__value__": 5},
    "nobodys_type": {"__type__": "no such", "__value__": 1},
    "text_with_types": json.dumps({"__type__": "uuid", "__value__": "x"}),
}


@pytest.mark.parametrize("pool", SERVING)
@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
async def test_types_of_kombu_in_an_unsigned_body_are_nobodys_call(fleet, post, pool, typed):
    queue, tool = SERVING[pool]
    await post.write(queue, b=json.dumps([[typed, ""], {}, NOTHING]), h='{"task": "echo", "id": "x"}', p="{}")
    assert (await post.letter())["reason"] in (b"not an envelope", b"unsigned or altered")
    await post.serves(tool, queue)
    assert alive(fleet)


CONTROL = {
    "no_message": "[]",
    "null": "null",
    "a_type_of_kombu": json.dumps({"__type__": "decimal", "__value__": "x"}),
    "too_deep": "[" * 100_000,
    "a_body_of_no_object": fanout([]),
    "a_body_with_a_type": fanout({"__type__": "decimal", "__value__": "x"}),
    "a_body_of_no_json": fanout(b"\xff"),
    "a_body_that_is_a_pickle": fanout(b"\x80", **{"content-type": "application/x-python-serialize"}),
    "another_encoding": fanout({"method": "ping"}, **{"content-encoding": "utf-7"}),
    "a_clock_that_is_none": fanout({"method": "ping"}, headers={"clock": [1]}),
    "properties_that_are_none": fanout({"method": "ping"}, properties=[]),
    "a_pattern_that_takes_for_ever": fanout({"method": "ping", "pattern": "(.+)+!", "matcher": "pcre"}),
    "an_answer_into_a_queue": fanout(
        {"method": "ping", "ticket": "t", "reply_to": {"exchange": "", "routing_key": "io"}}
    ),
}


@pytest.mark.parametrize("text", CONTROL.values(), ids=CONTROL)
async def test_junk_on_the_control_channel_is_counted_and_nothing_else(fleet, post, text):
    await shout(post, text)
    for queue, tool in SERVING.values():
        await post.serves(tool, queue)
    assert alive(fleet)


async def test_what_is_compressed_is_not_unpacked(fleet, post):
    bomb = zlib.compress(bytes(400 * MB), 9)
    headers = {"task": "echo", "id": "x", "compression": "application/x-gzip"}
    before = memory_bytes(fleet)
    await post.write("io", b=bomb, h=json.dumps(headers), p="{}")
    assert (await post.letter())["reason"] == b"compressed"
    await shout(post, fanout(bomb, headers={"compression": "application/x-gzip"}))
    await post.serves()
    assert memory_bytes(fleet) < before + 50 * MB


async def test_of_a_large_body_nothing_is_parsed_but_an_envelope(fleet, post):
    before = memory_bytes(fleet)
    for body in ("[" + "{}," * MB + "{}]", '[["text","mac"],{"a":[' + "[]," * MB + "0]},{}]"):
        await post.write("io", b=body, h='{"task": "echo", "id": "x"}', p="{}")
        assert (await post.letter())["reason"] == b"the body is large, and no signed call"
    await post.serves()
    assert memory_bytes(fleet) < before + 60 * MB


# --- remote control -------------------------------------------------------------------------------------------------

COMMANDS = {
    "shutdown": {},
    "revoke": {"task_id": ["r.1.0"], "terminate": True},
    "pool_grow": {"n": 3},
    "pool_shrink": {"n": 1},
    "rate_limit": {"task_name": "echo", "rate_limit": "1/h"},
    "time_limit": {"task_name": "echo", "hard": 0.1},
    "add_consumer": {"queue": "other"},
    "cancel_consumer": {"queue": "io"},
    "hello": {"from_node": "x", "revoked": {"r.1.0": 0}},
    "objgraph": {},
    "conf": {},
    "no such command": {},
}


@pytest.mark.parametrize("method", COMMANDS)
async def test_a_command_that_nobody_has_signed_is_not_obeyed(fleet, post, app, method):
    await shout(post, fanout({"method": method, "arguments": COMMANDS[method], "destination": None}))
    for queue, tool in SERVING.values():
        await post.serves(tool, queue)
    told = await told_by_all(app, fleet, "active_queues")
    assert {"io", "cpu"} <= {queue["name"] for queues in told.values() for queue in queues}
    assert "other" not in {queue["name"] for queues in told.values() for queue in queues}


async def test_a_command_signed_with_another_secret_is_not_obeyed(fleet, post):
    stranger = fleet.settings.model_copy(update={"secret": type(fleet.settings.secret)(new_secret())})
    text = json.dumps({"method": "shutdown", "arguments": {}, "at": time.time(), "nonce": "n"})
    signed = {"text": text, "mac": Seal(stranger).sign_order(text)}
    await shout(post, fanout({"method": SIGNED, "arguments": signed}))
    await post.serves()


async def test_a_signed_command_is_obeyed_once(fleet, post, app):
    pubsub = post.client.pubsub()
    await pubsub.subscribe(f"/0:{fleet.settings.namespace}.{BOX}")
    await pubsub.get_message(timeout=5)
    answers = await asyncio.to_thread(
        app.control.broadcast, "add_consumer", {"queue": "more"}, reply=True, limit=2, timeout=10
    )
    assert len(answers) == 2
    captured = (await pubsub.get_message(timeout=5))["data"]
    cancelled = await asyncio.to_thread(
        app.control.broadcast, "cancel_consumer", {"queue": "more"}, reply=True, limit=2, timeout=10
    )
    assert len(cancelled) == 2
    await shout(post, captured)
    told = await told_by_all(app, fleet, "active_queues")
    assert "more" not in {queue["name"] for queues in told.values() for queue in queues}
    await pubsub.aclose()


@pytest.mark.parametrize("question", ["ping", "active", "stats", "registered", "reserved", "scheduled"])
async def test_anybody_may_ask_what_changes_nothing(fleet, question):
    """As `celery --broker … inspect` without our app, and Flower without the secret."""
    stranger = celery_app(fleet.settings)
    stranger.control_cls = "celery.app.control:Control"
    try:
        assert len(await told_by_all(stranger, fleet, question)) == len(fleet.workers)
    finally:
        stranger.close()


def guard(fleet, now):
    return Guard(Seal(fleet.settings), fleet.settings.namespace, REPLIES, lambda: now[0])


def order(fleet, at, nonce="n", namespace=None):
    signed_for = namespace or fleet.settings.namespace
    text = json.dumps({"method": "shutdown", "arguments": {}, "fleet": signed_for, "at": at, "nonce": nonce})
    return {"method": SIGNED, "arguments": {"text": text, "mac": Seal(fleet.settings).sign_order(text)}}


def test_a_signed_command_is_for_a_few_minutes_and_for_who_was_there(fleet):
    now = [1000.0]
    heard = guard(fleet, now)
    assert heard.believed(order(fleet, 1000.0))["method"] == "shutdown"
    with pytest.raises(BeforeItsTime):
        heard.believed(order(fleet, 999.9, "on its way"))
    for late in (order(fleet, 990.0, "earlier"), order(fleet, 1001.0 + VALID_S, "in the future")):
        with pytest.raises(Refused, match="are the clocks right"):
            heard.believed(late)
    with pytest.raises(Refused, match="another fleet"):
        heard.believed(order(fleet, 1000.0, "there", namespace="elsewhere"))
    now[0] += VALID_S + 1
    with pytest.raises(Refused, match="are the clocks right"):
        heard.believed(order(fleet, 1000.0))


def test_questions_are_answered_as_often_as_a_worker_has_time_for(fleet):
    now = [0.0]
    heard = guard(fleet, now)
    for _ in range(int(QUESTIONS_AT_ONCE)):
        heard.believed({"method": "ping"})
    with pytest.raises(Refused, match="more questions"):
        heard.believed({"method": "ping"})
    assert heard.believed(order(fleet, 0.0))  # those who sign are heard all the same
    now[0] += 1.0
    assert heard.believed({"method": "ping"})


def test_no_question_changes_anything():
    from celery.worker.control import Panel

    assert {Panel.meta[name].type for name in QUESTIONS} == {"inspect"}
    assert not QUESTIONS & {"hello", "objgraph", "memdump", "memsample", "conf", "report"}


# --- a captured call ------------------------------------------------------------------------------------------------


async def entry_of(post, call):
    """The fields of an honest message, as an attacker reads them in the queue."""
    text, mac = post.seal.close_call(call)
    headers = {"lang": "py", "task": call.tool, "id": call.call_id, "claim": 660}
    body = json.dumps([[text, mac], {}, NOTHING])
    return {"b": body, "h": json.dumps(headers), "p": "{}", "id": call.call_id, "claim": "660"}


LIES = {
    "another_id": {"id": "another.1.0"},
    "a_short_claim": {"claim": "1"},
    "a_claim_that_is_no_number": {"claim": "soon"},
    "a_claim_that_is_endless": {"claim": "1e300"},
    "no_claim": {"claim": ""},
    "carried_from_the_first": {"first": None, "earlier": "0"},
    "carried_from_elsewhere": {"first": "1-0"},
    "said_to_be_held": {"held_as": "@1-0", "first": "1-0"},
}


@pytest.mark.parametrize("pool", SERVING)
@pytest.mark.parametrize("lies", LIES.values(), ids=LIES)
async def test_a_captured_call_has_no_second_effect_whatever_its_entry_says(post, tmp_path, lies, pool):
    queue, tool = SERVING[pool][0], "write_line"
    file = tmp_path / "effect"
    call = post.call(tool, {"path": str(file)})
    honest = await entry_of(post, call)
    await post.write(queue, **honest)
    assert await post.result() == (call.call_id, Returned(content="written"))
    held_by = (await post.client.get(post.keys.claim(call.call_id))).decode()
    forged = {**honest, **{name: said if said is not None else held_by for name, said in lies.items()}}
    for _ in range(2):
        await post.write(queue, **forged)
    await post.serves(*reversed(SERVING[pool]))
    assert len(lines(file)) == 1


@pytest.mark.parametrize("pool", SERVING)
@pytest.mark.parametrize("waits", [True, False], ids=["is_waited_for", "is_fetched"])
async def test_a_call_that_has_its_result_has_no_second_effect_though_its_claim_was_taken(post, tmp_path, pool, waits):
    file = tmp_path / "effect"
    call = post.call("write_line", {"path": str(file)})
    honest = await entry_of(post, call)
    await post.write(SERVING[pool][0], **honest)
    assert await post.result() == (call.call_id, Returned(content="written"))
    for _ in range(1 if waits else 20):
        await post.client.delete(post.keys.claim(call.call_id))
        await post.write(SERVING[pool][0], **honest)
    await post.serves(*reversed(SERVING[pool]))
    assert len(lines(file)) == 1


async def test_a_claim_lasts_beyond_the_signed_deadline_whatever_the_entry_says(post, tmp_path):
    call = post.call("write_line", {"path": str(tmp_path / "effect")}, deadline_unix_s=time.time() + 300)
    await post.write("io", **await entry_of(post, call) | {"claim": "5"})
    assert await post.result() == (call.call_id, Returned(content="written"))
    assert await post.client.ttl(post.keys.claim(call.call_id)) > 300 + 300


async def test_a_captured_call_is_refused_after_its_deadline_without_any_claim(post, tmp_path):
    file = tmp_path / "effect"
    call = post.call("write_line", {"path": str(file)}, deadline_unix_s=time.time() + 1.0)
    honest = await entry_of(post, call)
    await post.write("io", **honest)
    assert await post.result() == (call.call_id, Returned(content="written"))
    await asyncio.sleep(1.1)
    await post.client.delete(post.keys.claim(call.call_id), post.keys.result(call.call_id))
    await post.write("io", **honest)
    assert "no effect" in (await post.result())[1].message
    assert len(lines(file)) == 1


async def test_a_message_that_is_due_may_be_anything_and_holds_up_no_other(post):
    junk = ("junk", "[1,2,3]", json.dumps(["nowhere", "b", "x"]), json.dumps(["x"] * 9001), "[" * 500)
    await post.client.zadd(post.keys.scheduled("io"), dict.fromkeys(junk, 0))
    for _ in junk:
        assert (await post.letter())["reason"] == b"a field is missing"
    await post.serves()


def test_a_worker_joins_beside_junk(fleet):
    """What stands in Redis of others is read before a worker begins."""
    from toolfleet.connections import connect

    keys = fleet.settings.keys
    with connect(fleet.settings) as client:
        client.zadd(keys.orchestrators(), {"junk": 4e12, b"\xff": 4e12})
        client.set(keys.orchestrator_proofs("junk"), "{}", ex=30)
        until_announced(fleet, fleet.start_worker("io", environment={"PYTHONPATH": str(Path(__file__).parent)}))
        client.zrem(keys.orchestrators(), "junk", b"\xff")
