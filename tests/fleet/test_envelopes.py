"""What a worker does with messages that it must not believe, must not start any more, or has seen before."""

import json
import time

import pytest
from fleets import fleet_of
from post import NOTHING
from processes import lines
from stages import stage_of_its_own

from toolfleet.calls import FailureKind, Returned
from toolfleet.settings import new_secret
from toolfleet.wire import Seal

SERVING = {"asyncio": ("io", "echo"), "prefork": ("cpu", "blocking_echo")}
"""Where each kind of pool serves, and a tool that answers there."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "cpu": 1}, max_message_bytes=65536) as running:
        yield running


def unsigned(post, text, mac):
    return text, ""


def altered(post, text, mac):
    return text.replace("intended", "INTENDED"), mac


def of_a_stranger(post, text, mac):
    stranger = post.settings.model_copy(update={"secret": type(post.settings.secret)(new_secret())})
    return text, Seal(stranger)._sign(b"toolfleet.call\0", text.encode())


def signed_as_a_result(post, text, mac):
    sealed = post.seal.close_result(Returned(content="x"), "r.1.0")
    return sealed[64:].decode(), sealed[:64].decode()


def no_json_at_all(post, text, mac):
    return "intended", post.seal._sign(b"toolfleet.call\0", b"intended")


def no_text_at_all(post, text, mac):
    return {"intended": True}, ["mac"]


FORGERIES = {
    unsigned: "unsigned or altered",
    altered: "unsigned or altered",
    of_a_stranger: "unsigned or altered",
    signed_as_a_result: "unsigned or altered",
    no_json_at_all: "wrong version or shape",
    no_text_at_all: "not an envelope",
}


@pytest.mark.parametrize("pool", SERVING)
@pytest.mark.parametrize(("forge", "reason"), FORGERIES.items(), ids=lambda given: getattr(given, "__name__", ""))
async def test_a_forgery_goes_to_the_dead_letters_and_nothing_runs(post, forge, reason, pool):
    queue, tool = SERVING[pool]
    counted = await post.counted(f"dead:{reason}")
    call = post.call(tool, {"value": "intended"})
    post.send_text(*forge(post, *post.seal.close_call(call)), call, queue=queue)
    letter = await post.letter()
    assert (letter["reason"].decode(), letter["task"].decode(), letter["id"].decode()) == (reason, tool, call.call_id)
    assert await post.counted(f"dead:{reason}") == counted + 1
    await post.serves(tool, queue)


async def test_a_signed_call_under_another_tools_name_is_not_run(post, tmp_path):
    call = post.call("echo", {"path": str(tmp_path / "effect")})
    post.send(call, task="write_line")
    assert (await post.letter())["reason"] == b"the envelope belongs to another call or tool"
    await post.serves()
    assert lines(tmp_path / "effect") == []


async def test_a_signed_call_under_another_calls_id_is_not_run(post):
    post.send(post.call("echo", {"value": 1}), id="another.1.0")
    assert (await post.letter())["reason"] == b"the envelope belongs to another call or tool"
    await post.serves()


async def test_a_call_larger_than_allowed_is_not_run(post):
    generous = Seal(post.settings.model_copy(update={"max_message_bytes": 10**6}))
    call = post.call("echo", {"value": "x" * 70_000})
    text, mac = generous.close_call(call)
    body = json.dumps([[text, mac], {}, NOTHING])
    headers = json.dumps({"lang": "py", "task": "echo", "id": call.call_id})
    await post.write(b=body, h=headers, p=json.dumps({"delivery_info": {}}))
    assert (await post.letter())["reason"] == b"larger than max_message_bytes"
    await post.serves()


@pytest.mark.parametrize(
    "fields",
    [
        {"b": "not JSON", "h": '{"task": "echo", "id": "x"}', "p": "{}"},
        {"b": "5", "h": '{"task": "echo", "id": "x"}', "p": "{}"},
        {"b": "[[], {}, {}]", "h": '{"task": "echo"}', "p": "{}"},
        {"b": "[[], {}, {}]", "h": '{"task": "echo", "id": {}}', "p": "{}"},
        {"b": '{"task": "celery.accumulate", "id": "x", "args": [1], "kwargs": {}}', "h": "{}", "p": "{}"},
        {"x": "y"},
    ],
    ids=["body_no_json", "body_no_call", "no_id", "id_no_text", "protocol_1", "no_fields"],
)
async def test_what_is_no_task_message_goes_to_the_dead_letters(post, fields):
    counted = await post.counted("dead_letters")
    await post.write(**fields)
    assert (await post.letter())["reason"]
    assert await post.counted("dead_letters") == counted + 1
    await post.serves()


@pytest.mark.parametrize("pool", SERVING)
async def test_celerys_own_tasks_are_nobodys_calls(post, pool):
    queue, tool = SERVING[pool]
    call = post.call("celery.map")
    echo = {"task": "celery.accumulate", "args": [], "kwargs": {}, "options": {}, "subtask_type": None}
    post.send_body([[], {"task": echo, "it": [[1]]}, NOTHING], call, queue=queue)
    letter = await post.letter()
    assert (letter["task"], letter["reason"]) == (b"celery.map", b"not an envelope")
    await post.serves(tool, queue)


@pytest.mark.parametrize("pool", SERVING)
async def test_what_the_signature_does_not_cover_is_not_acted_upon(post, tmp_path, pool):
    """Celery would send the tasks named in a message's callbacks and chain; they ride outside the envelope."""
    queue, tool = SERVING[pool]
    call = post.call(tool, {"value": "x"})
    further = {"task": "followed", "args": [], "kwargs": {}, "options": {"queue": "io"}, "subtask_type": None}
    embed = {"callbacks": [further], "errbacks": [further], "chain": [further], "chord": None}
    post.send_body([list(post.seal.close_call(call)), {}, embed], call, queue=queue)
    assert await post.result() == (call.call_id, Returned(content="x"))
    # Had it been followed, this would not be the next dead letter.
    post.send_text("", "", post.call("echo"), queue="io")
    assert (await post.letter())["task"] == b"echo"


@pytest.mark.parametrize("pool", SERVING)
async def test_a_call_of_a_tool_that_is_not_here_is_answered(post, pool):
    queue, tool = SERVING[pool]
    call = post.call("gone_tool", deadline_unix_s=time.time() + 3)
    post.send(call, queue=queue)
    call_id, result = await post.result()
    assert call_id == call.call_id
    assert result.kind is FailureKind.UNKNOWN_TOOL
    assert "no live worker serves gone_tool, and none came" in result.message
    await post.serves(tool, queue)


@pytest.mark.parametrize("pool", SERVING)
async def test_a_call_past_its_deadline_never_starts(post, pool):
    queue, tool = SERVING[pool]
    call = post.call(tool, {"value": "late"}, deadline_unix_s=time.time() - 1)
    post.send(call, queue=queue)
    call_id, result = await post.result()
    assert (call_id, result.kind) == (call.call_id, FailureKind.EXPIRED)
    assert "no effect" in result.message


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed_by_the_transport", "claimed_by_the_worker"])
async def test_the_same_envelope_twice_has_one_effect_and_one_result(post, tmp_path, claimed):
    file, copies = tmp_path / "effect", await post.counted("duplicate_messages")
    call = post.call("write_line", {"path": str(file)})
    headers = {"claim": 600} if claimed else {}
    for _ in range(3):
        post.send(call, **headers)
    assert await post.result() == (call.call_id, Returned(content="written"))
    post.send(call, **headers)
    await post.serves()
    assert len(lines(file)) == 1
    assert await post.counted("duplicate_messages") == copies + 3


async def test_L7_the_same_repeatable_envelope_twice_has_one_result(post):
    async with stage_of_its_own() as stage:
        call = post.call("play", {"stage": stage.path})
        post.send(call)
        post.send(call)
        first, second = await stage.enters(), await stage.enters()
        second.returns("second")
        assert await post.result() == (call.call_id, Returned(content="second"))
        first.returns("first")
        assert await first.leaves() == "returned"
    await post.serves()
    assert await post.running() == 0
    stored = await post.client.get(post.keys.result(call.call_id))
    assert post.seal.open_result(stored, call.call_id) == Returned(content="second")
