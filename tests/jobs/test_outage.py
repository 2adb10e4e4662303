"""Jobs survive the server's death: what was scheduled is still due, and an answer in hand is said when it is back."""

from __future__ import annotations

import pytest

from toolfleet.calls import Returned
from toolfleet.local.fleet import LocalFleet
from toolfleet.testing.faulty_server import FaultyServer


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(server, tools_here):
    with LocalFleet(
        ["job_tools"],
        pools={"io": 1},
        environment=tools_here,
        redis_url=server.url,
        poll_tick_s=0.05,
        namespace="outage",
    ) as running:
        yield running


async def test_an_answer_that_came_while_the_server_was_down_is_stored_when_it_is_back(server, post, system):
    call = await post.submitted("remote", system=system.url)
    question = await system.asked()
    server.kill()
    question.answer(content="in hand")
    server.start()
    await post.client.connection_pool.disconnect()
    assert await post.ended(call) == Returned(content="in hand")
    assert len(system.questions) == 1


async def test_what_was_scheduled_before_the_server_died_is_asked_about_afterwards(server, post, system):
    call = await post.submitted("remote", system=system.url, poll_after_s=0.5)
    server.restart()
    await post.client.connection_pool.disconnect()
    (await system.asked()).answer(content="done")
    assert await post.ended(call) == Returned(content="done")
    assert len(system.jobs) == 1
