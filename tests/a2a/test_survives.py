"""A task whose server is killed while it is followed: it goes on elsewhere, and whoever subscribes again has all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from a2a.client.errors import A2AClientError

from tests.a2a.agents import COMPLETED, WORKING, Agent, said, text_of
from tests.a2a.test_tasks import answer_heard, states_of
from tests.http.serving import serving
from tests.http.test_responses_that_survive import SECOND, SlowProvider, provider, short_leases
from toolfleet.local.fleet import LocalFleet

__all__ = ["provider", "short_leases"]

FOUND_AGAIN_WITHIN_S = 60


async def test_U12_a_task_goes_on_after_its_server_was_killed_in_the_midst_of_a_reply(
    short_leases: LocalFleet, provider: tuple[SlowProvider, str], tmp_path: Path
) -> None:
    model, address = provider
    variables = {"OPENAI_BASE_URL": address, "OPENAI_MODEL": "slow", "OPENAI_API_KEY": "k"}
    message = said("Tell.")
    heard = []
    with serving(short_leases.settings, tmp_path, **variables) as first:
        async with Agent.at(first.url, first.key) as agent:
            with pytest.raises(A2AClientError):
                async for event in agent.streaming(message):
                    heard.append(event)
                    if answer_heard(heard).endswith(" stormy"):
                        first.process.kill()
    task_id = heard[0].task.id
    assert states_of(heard) == [WORKING]
    with serving(short_leases.settings, tmp_path, **variables) as second:
        async with Agent.at(second.url, second.key) as agent, asyncio.timeout(FOUND_AGAIN_WITHIN_S):
            assert (await agent.get(task_id)).status.state == WORKING
            rest = [event async for event in agent.subscribed(task_id)]
            task = await agent.get(task_id)
            again = await agent.ask(message)  # sent once more, as its sender never had the end
    assert (task.status.state, text_of(task)) == (COMPLETED, SECOND)
    assert answer_heard(rest) == SECOND
    assert rest[-1].status_update.status.state == COMPLETED
    assert again == task
    assert model.asked == 3


async def test_U12_a_server_that_stops_says_so_and_the_task_is_followed_at_another(
    short_leases: LocalFleet, provider: tuple[SlowProvider, str], tmp_path: Path
) -> None:
    _, address = provider
    variables = {"OPENAI_BASE_URL": address, "OPENAI_MODEL": "slow", "OPENAI_API_KEY": "k"}
    with (
        serving(short_leases.settings, tmp_path / "1", **variables) as first,
        serving(short_leases.settings, tmp_path / "2", **variables) as second,
    ):
        async with Agent.at(first.url, first.key) as agent, Agent.at(second.url, second.key) as other:
            heard = []
            with pytest.raises(Exception, match="this server stops"):
                async for event in agent.streaming(said("Tell.")):
                    heard.append(event)
                    if answer_heard(heard).endswith(" stormy"):
                        first.process.terminate()
            async with asyncio.timeout(FOUND_AGAIN_WITHIN_S):
                rest = [each async for each in other.subscribed(heard[0].task.id)]
            assert answer_heard(rest) == SECOND
