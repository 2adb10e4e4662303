"""A task whose server is killed while it is followed: it goes on elsewhere, and who subscribes again has all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from a2a.client.errors import A2AClientError
from a2a.types import Message, StreamResponse
from a2a.utils.errors import A2AError

from tests.http.a2a_agents import COMPLETED, WORKING, Agent, said, text_of
from tests.http.serving import serving
from tests.http.test_a2a_tasks import answer_heard, states_of
from tests.http.test_responses_that_survive import SECOND, SlowProvider, provider, short_leases
from toolfleet.local.fleet import LocalFleet

__all__ = ["provider", "short_leases"]

FOUND_AGAIN_WITHIN_S = 60


async def heard_until(agent: Agent, message: Message, ends: Callable[[], None]) -> list[StreamResponse]:
    """What is heard of a task whose server is ended in the midst of the model's first reply in words."""
    heard: list[StreamResponse] = []
    with suppress(A2AClientError, A2AError):
        async for event in agent.streaming(message):
            heard.append(event)
            if "stormy" in answer_heard(heard):
                ends()
    return heard


async def test_U12_a_task_goes_on_after_its_server_was_killed_in_the_midst_of_a_reply(
    short_leases: LocalFleet, provider: tuple[SlowProvider, str], tmp_path: Path
) -> None:
    model, address = provider
    variables = {"OPENAI_BASE_URL": address, "OPENAI_MODEL": "slow", "OPENAI_API_KEY": "k"}
    message = said("Tell.")
    model.goes_on.clear()
    with serving(short_leases.settings, tmp_path, **variables) as first:
        async with Agent.at(first.url, first.key) as agent:
            heard = await heard_until(agent, message, first.process.kill)
    task_id = heard[0].task.id
    assert set(states_of(heard)) <= {WORKING}
    with serving(short_leases.settings, tmp_path, **variables) as second:
        async with Agent.at(second.url, second.key) as agent, asyncio.timeout(FOUND_AGAIN_WITHIN_S):
            assert (await agent.get(task_id)).status.state == WORKING
            rest = []
            async for event in agent.subscribed(task_id):
                rest.append(event)
                model.goes_on.set()
            task = await agent.get(task_id)
            again = await agent.ask(message)  # sent once more, as its sender never had the end
    assert (task.status.state, text_of(task)) == (COMPLETED, SECOND)
    assert answer_heard(rest) == SECOND
    assert rest[-1].status_update.status.state == COMPLETED
    assert again == task
    assert model.asked == 3
