"""Workers of several versions on one Redis, as in a roll-out: each call comes to one that can read it.

One of them has read docs/wire.md and nothing else (`stranger.py`), and reads a version 2 that is made up here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fleets import fleet_of
from post import NOTHING

from toolfleet.calls import FailureKind, Returned

STRANGER = Path(__file__).with_name("stranger.py")
ENDS_WITHIN_S = 20


@contextmanager
def stranger(fleet, name="stranger@here"):
    """A worker by the page, in a process of its own."""
    secret = fleet.settings.secret.get_secret_value()
    command = [sys.executable, str(STRANGER), fleet.settings.redis_url, secret, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.terminate()
            assert process.wait(ENDS_WITHIN_S) == 0


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


def of_version_2(post, call):
    """The same call as the next major version might write it, and its MAC."""
    record = {**call.model_dump(mode="json"), "v": 2, "arguments": json.loads(call.arguments)}
    text = json.dumps(record)
    return text, post.seal._sign(b"toolfleet.call\0", text.encode())


async def dead_letters(post):
    return await post.client.xlen(post.keys.dead_letters())


async def test_X4_a_call_of_a_next_major_version_waits_for_who_reads_it(fleet, post):
    call = post.call("echo", {"value": "of version 2"})
    post.send_text(*of_version_2(post, call), call)
    # The worker that does not read it has had it, and has let it go on.
    while not await post.client.zcard(post.keys.scheduled("io")):
        await asyncio.sleep(0.01)
    with stranger(fleet):
        call_id, result = await post.result()
    assert (call_id, result.content, result.attributes) == (call.call_id, "of version 2", {"by": "stranger@here"})
    assert await dead_letters(post) == 0


async def test_X4_a_call_that_nobody_reads_is_answered_and_not_buried(post):
    call = post.call("echo", {"value": 1}, deadline_unix_s=time.time() + 1.5)
    post.send_text(*of_version_2(post, call), call)
    call_id, result = await post.result()
    assert (call_id, result.kind) == (call.call_id, FailureKind.UNKNOWN_TOOL)
    assert "version 2" in result.message
    assert await dead_letters(post) == 0


async def test_X4_an_effect_that_may_have_happened_in_another_version_is_in_doubt(post):
    """Whoever could read it was lost while it ran, and nobody else comes."""
    call = post.call("add", {"a": 1, "b": 1}, deadline_unix_s=time.time() + 1.5)
    text, mac = of_version_2(post, call)
    headers = json.dumps({"lang": "py", "task": "add", "id": call.call_id, "claim": 601})
    body = json.dumps([[text, mac], {}, NOTHING])
    await post.write(b=body, h=headers, p="{}", id=call.call_id, claim="601", first="1-1", earlier="1")
    call_id, result = await post.result()
    assert (call_id, result.kind) == (call.call_id, FailureKind.IN_DOUBT)


async def test_X4_an_unknown_header_field_or_option_changes_nothing(post):
    call = post.call("echo", {"value": "as ever"})
    record = {**call.model_dump(mode="json"), "of_a_newer_minor_version": {"x": [1]}}
    text = json.dumps(record)
    mac = post.seal._sign(b"toolfleet.call\0", text.encode())
    headers = {"lang": "ts", "task": "echo", "id": call.call_id, "x-new": {"y": [None]}, "priority_of_next_year": 1}
    body = json.dumps([[text, mac], {}, {"newer": 1}])
    await post.write(b=body, h=json.dumps(headers), p='{"newer": []}', id=call.call_id, newer="z")
    assert await post.result() == (call.call_id, Returned(content="as ever"))


async def test_X4_versions_mixed_in_a_roll_out_lose_double_and_bury_nothing(fleet, post):
    """Calls of both versions, while workers that read the next one come, go, and come again."""
    answers, calls = {}, []

    def send(count):
        for number in range(count):
            call = post.call("echo", {"value": f"{len(calls)}"})
            calls.append(call)
            text, mac = of_version_2(post, call) if number % 2 else post.seal.close_call(call)
            post.send_text(text, mac, call)

    async def hear(count):
        while len(answers) < count:
            call_id, result = await post.result()
            assert call_id not in answers
            answers[call_id] = result.content

    send(20)
    with stranger(fleet, "first@here"):
        await hear(20)
        send(40)
    # Whatever it had not begun has gone back when it stopped.
    with stranger(fleet, "second@here"):
        send(20)
        await hear(80)
    assert answers == {call.call_id: str(number) for number, call in enumerate(calls)}
    assert await dead_letters(post) == 0
    assert await post.client.xlen(post.keys.queue("io", 3)) == 0
