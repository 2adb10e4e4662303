"""Calls of a version that are answered from a cache, replayed from the dead letters, or made again: they stay of it."""

from __future__ import annotations

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking
from post import Post

from tests.http.fleet_of_doors import api_of
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.workers.perform.shared_answers import AGAIN


@pytest.fixture(scope="module")
def fleet():
    """A worker of each of two versions."""
    with LocalFleet(["rated_tools"], pools={}, environment=HERE) as running:
        for version in ("1", "2"):
            running.start_worker("io", environment={"VERSION_OF_TOOLS": version})
        running.wait_until_ready()
        yield running


@pytest.fixture
async def post(fleet):
    async with Post(fleet.settings) as post:
        yield post


async def answered(post, version):
    post.send(post.call("rate", {"currency": "EUR"}, version=version))
    _, result = await post.result()
    return result


async def test_U5_an_answer_that_is_kept_is_given_again_to_calls_of_its_version_only(post):
    for version in (1, 2):
        assert (await answered(post, version)).content == f"EUR by version {version}"
    for version in (1, 2):
        again = await answered(post, version)
        assert again.content == f"EUR by version {version}"
        assert again.attributes.items() >= AGAIN.items()


async def test_U5_a_replayed_dead_letter_is_run_in_its_version_or_stays_where_it_is(fleet, post, tmp_path):
    (tmp_path / "here").touch()
    stream = fleet.settings.keys.dead_letters()
    calls = {version: post.call("deliver", {"path": str(tmp_path / "here")}, version=version) for version in (1, 2, 3)}
    for call in calls.values():
        text, mac = post.seal.close_call(call)
        letter = {"reason": "crashed", "task": call.tool, "id": call.call_id, "text": text, "mac": mac}
        await post.client.xadd(stream, letter)
    async with api_of(fleet.settings) as api:
        told = (await api.client.post("/v1/dead/replay", json={"tool": "deliver", "expected": 3})).json()
    assert (told["done"], told["refused"]) == (2, 1)
    assert "version 3 of deliver is served by no live worker" in next(iter(told["why"]))
    for version in (1, 2):
        key = fleet.settings.keys.result(calls[version].call_id)
        async with asyncio.timeout(30):
            while (sealed := await post.client.get(key)) is None:
                await asyncio.sleep(0.05)
        assert post.seal.open_result(sealed, calls[version].call_id).content == f"delivered by version {version}"
    await post.client.delete(stream)


async def test_U5_a_call_that_is_made_again_has_the_version_that_it_was_written_for(fleet, tmp_path):
    asks = requesting(("d", "deliver", json.dumps({"path": str(tmp_path / "here")}))), "tool_calls"
    model = WrittenModel(asks)
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        await orchestrator.versions.share("deliver", 1, 1.0)
        async with asyncio.timeout(30):
            while (failed := await orchestrator.run("?")).versions["deliver"] != 1:
                model._replies[:] = [asks]
        await orchestrator.versions.settle("deliver")
        (tmp_path / "here").touch()
        async with asyncio.timeout(30):
            while await newest(orchestrator, tmp_path) != "delivered by version 2":
                await asyncio.sleep(0.05)
        again = await orchestrator.wait(await orchestrator.retry_call(failed.calls[0].call_id))
    assert again.versions["deliver"] == 1
    said = [message.content for message in again.messages if isinstance(message, ToolMessage)]
    assert said == ["delivered by version 1"]


async def newest(orchestrator, folder):
    """What a call of the newest version says."""
    [answer] = await orchestrator.execute(asking(("deliver", {"path": str(folder / "here")})))
    return answer.content
