"""A run whose model's provider has tools of its own: seen in it, kept by exports and forks, the same in a replay."""

from __future__ import annotations

import json

import pytest
from strict_provider import StrictProvider

from tests.steering.replayed import export_of, offline_settings
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import Limits, Orchestrator, State
from toolfleet.orchestrator.doors.http.hiding import hidden
from toolfleet.orchestrator.replay.replaying import replay

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "owls"}}
HIT = {"type": "web_search_result", "url": "https://owls.example", "title": "Owls", "encrypted_content": "Eqg+/="}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
TEXT = {"type": "text", "text": "Owls."}


def says(content, stop_reason):
    usage = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}}
    told = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return json.dumps({**told, "content": content, "stop_reason": stop_reason, "usage": usage}).encode()


@pytest.fixture
async def provider():
    async with StrictProvider() as provider:
        yield provider
        assert provider.refusals == []


async def test_U15_what_a_providers_tools_did_is_seen_in_the_run_and_survives_export_replay_and_fork(fleet, provider):
    asked = [TEXT, USE, RESULT, CALL]
    provider.replies += [says(asked, "tool_use"), says([TEXT], "end_turn"), says([TEXT], "end_turn")]
    model = provider.anthropic(stream=False, provider_tools=[SEARCH])
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("Owls?", tools=["add"])
        export = await export_of(orchestrator, run.run_id)
        forked = await orchestrator.fork(run.run_id, "And mice?", at=1)
        fork = await orchestrator.wait(forked)
    assert (run.state, run.answer, [call.tool for call in run.calls]) == (State.DONE, "Owls.", ["add"])
    assert run.usage.provider_tools == {"web_search": 2}
    assert hidden(json.loads(run.model_dump_json()))["usage"]["provider_tools"] == {"web_search": 2}
    assert [request["messages"][1]["content"] for request in provider.requests[1:]] == [asked, asked]
    assert [len(request["tools"]) for request in provider.requests] == [2, 2, 2]
    done = await replay(export, offline_settings())
    assert (done.differences, done.messages) == ((), run.messages)
    [said, _] = [message for message in done.messages if isinstance(message, AssistantMessage)]
    assert RESULT in said.extras["127.0.0.1"]["provider_parts"]["blocks"]
    assert fork.state is State.DONE


async def test_U15_a_run_at_its_limit_may_not_use_the_providers_tools_either(fleet, provider):
    again = {**CALL, "id": "toolu_2"}
    provider.replies += [says([CALL], "tool_use"), says([again], "tool_use"), says([TEXT], "end_turn")]
    model = provider.anthropic(stream=False, provider_tools=[SEARCH])
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("Owls?", tools=["add"], limits=Limits(calls=1, wrap_up=True))
    assert (run.state, run.answer) == (State.DONE, "Owls.")
    assert [request.get("tool_choice") for request in provider.requests] == [None, None, {"type": "none"}]
    assert provider.requests[2]["tools"][-1] == SEARCH


async def test_U15_a_run_whose_tools_clash_with_the_providers_fails_and_says_why(fleet, provider):
    model = provider.anthropic(stream=False, provider_tools=[{**SEARCH, "name": "add"}])
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("Owls?")
    assert run.state is State.FAILED
    assert "the fleet's tool add has the name of a tool that the model's provider runs itself" in run.reason
    assert provider.requests == []
