"""What nobody should do to a worker in another language: each gets a clear answer, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from toolfleet.calls import Returned
from toolfleet.orchestrator import Orchestrator


@pytest.fixture(scope="module")
def fleet(language):
    with language.fleet_of() as running:
        yield running


async def test_X2_what_is_no_call_is_buried_and_the_worker_goes_on(post):
    call = post.call("echo", {"value": 1})
    text, mac = post.seal.close_call(call)
    post.send_text(text, mac[:-1] + ("0" if mac[-1] != "0" else "1"), call)
    assert b"unsigned or altered" in (await post.letter())["reason"]
    await post.write(b="[", h="{}", p="{}")
    assert (await post.letter())["reason"]
    post.send_text(text, mac, call.model_copy(update={"tool": "add"}))
    assert b"another call or tool" in (await post.letter())["reason"]
    for arguments in ("[1", '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"value":' + "9" * 5000 + "}"):
        bad = post.call("echo").model_copy(update={"arguments": arguments})
        post.send(bad)
        call_id, result = await post.result()
        assert (call_id, result.kind) == (bad.call_id, "bad_arguments"), result
    await post.serves()


async def test_X2_a_call_sent_twice_has_one_effect(post):
    call = post.call("add", {"a": 1, "b": 2})
    for _ in range(2):
        post.send(call, claim=700)
    assert await post.result() == (call.call_id, Returned(content="3"))
    await post.serves()
    assert await post.counted("duplicate_messages") == 1


async def test_X2_a_result_of_100_mb_is_cut_and_says_so(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("wordy", {"characters": 35_000_000})
        assert result.content.endswith(f"[cut: the result has 105000000 bytes, the first {262144 // 3 * 3} are shown]")
        odd = await orchestrator.call(
            "echo", {"value": "half a \ud83d character".encode("utf-16", "surrogatepass").decode("utf-16", "replace")}
        )
        assert json.dumps(odd.content)


async def test_a_call_of_another_version_is_not_run_and_says_why(begin, orchestrator, stage):
    offered = dict(await orchestrator.catalog.offered())
    offered["play_once"] = offered["play_once"].model_copy(update={"version": 7})
    orchestrator.catalog._offered = offered
    [said] = await begin(("play_once", {"stage": stage.path}), timeout_s=3.0)
    assert said.startswith("no live worker serves version 7 of play_once")
