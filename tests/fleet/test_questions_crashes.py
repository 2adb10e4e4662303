"""Processes that are killed in the midst of a question: nothing is asked twice, lost, or answered twice."""

import asyncio
import json
import os
import sys

import pytest
from fleets import HERE
from post import Post

from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import QuestionClosed
from toolfleet.testing import MortalFleet, Point, kill_at

ANSWER = """
import asyncio, sys
import toolfleet.testing.instruments
from toolfleet import Orchestrator

async def main():
    async with Orchestrator() as fleet:
        await fleet.answer(sys.argv[1], "savings", by="ann")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def fleet():
    with MortalFleet(
        ["question_tools"], pools={"cpu": 1}, environment=HERE, lease_s=3.0, heartbeat_s=0.5, shutdown_grace_s=0.2
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    post = Post(fleet.settings)
    yield post
    await post.aclose()


async def the_question(orchestrator, call_id):
    async with asyncio.timeout(30):
        while not (waiting := (await orchestrator.questions()).waiting):
            await asyncio.sleep(0.02)
    [asked] = waiting
    assert asked.call_id == call_id
    return asked


@pytest.mark.parametrize("at", [Point.QUESTION_STORED, Point.LEAVING])
async def test_U3_a_worker_killed_while_it_asks_is_followed_by_one_that_asks_nothing_twice(
    fleet, post, orchestrator, at
):
    doomed = fleet.start_fated("io", kill_at(at))
    await asyncio.to_thread(fleet.wait_until_ready)
    call = post.call("transfer_again")
    post.send(call)
    await asyncio.to_thread(doomed.process.wait, 30)
    asked_first = await the_question(orchestrator, call.call_id)
    survivor = fleet.start_worker("io")
    await asyncio.to_thread(fleet.wait_until_ready)
    asked = await the_question(orchestrator, call.call_id)
    assert asked == asked_first
    await orchestrator.answer(asked.question_id, "savings")
    _, returned = await post.result()
    assert json.loads(returned.content) == ["savings", 2]
    fleet.kill(survivor)


async def test_U3_a_server_killed_just_after_an_answer_was_stored_has_answered(fleet, post, orchestrator):
    survivor = fleet.start_worker("io")
    await asyncio.to_thread(fleet.wait_until_ready)
    call = post.call("transfer_again")
    post.send(call)
    asked = await the_question(orchestrator, call.call_id)
    settings = fleet.settings
    environment = {**os.environ, "TOOLFLEET_REDIS_URL": settings.redis_url, **kill_at(Point.ANSWER_STORED)}
    if secret := settings.secret.get_secret_value():
        environment["TOOLFLEET_SECRET"] = secret
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", ANSWER, asked.question_id, env=environment)
    assert await server.wait() == -9
    with pytest.raises(QuestionClosed, match="answered already by ann"):
        await orchestrator.answer(asked.question_id, "checking", by="bob")
    _, returned = await post.result()
    assert json.loads(returned.content) == ["savings", 1]
    fleet.kill(survivor)


@pytest.fixture
async def orchestrator(fleet):
    async with Orchestrator(settings=fleet.settings) as running:
        yield running
