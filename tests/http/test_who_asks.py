"""Who asks: told to tools by the key, over every door, and by nobody's word but the key's."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.http.fleet_of_doors import WAIT_S, api_of
from toolfleet import Agent, AssistantMessage, Orchestrator, RequestedCall
from toolfleet.orchestrator import Interceptor
from toolfleet.orchestrator.models import REHEARSAL_MODEL
from toolfleet.orchestrator.models.recorded import FunctionModel

LIE = {"tenant": "umbrella", "subject": "mallory"}
ADA = {"tenant": "acme", "subject": "ada", "claimed": "umbrella"}


@pytest.fixture
async def door(http_fleet, model):
    """The API, and the headers of a key of Ada's, who says that she is somebody else."""
    async with api_of(http_fleet.settings, model) as api:
        key, made = await api.door.keyring.add(tenant="acme", subject="ada")
        api.client.headers["authorization"] = f"Bearer {key}"
        try:
            yield api
        finally:
            await api.door.keyring.revoke(made.key_id)


async def post(api, path, **body):
    answer = await api.client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


async def test_a_single_call_is_the_keys_and_no_body_can_say_otherwise(door):
    result = await post(door, "/v1/tools/who_asks/call", context=LIE)
    assert json.loads(result["content"]) == ADA
    for name, value in LIE.items():
        lying = await door.client.post("/v1/tools/who_asks/call", json={name: value})
        assert lying.status_code == 422


async def test_the_calls_of_a_run_are_the_keys(door):
    run_id = await door.begin("call who_asks {}", context=LIE)
    run = await door.ended(run_id)
    assert [json.loads(message["content"]) for message in run["messages"] if message["role"] == "tool"] == [ADA]
    lying = await door.client.post("/v1/runs", json={"question": "?", **LIE})
    assert lying.status_code == 422


async def test_a_run_that_another_key_resumes_goes_on_for_that_key(door):
    run_id = await door.begin("Hello")
    await door.ended(run_id)
    key, made = await door.door.keyring.add(tenant="acme", subject="bob")
    bob = {"authorization": f"Bearer {key}"}
    try:
        asked = {"question": "call who_asks {}"}
        resumed = await door.client.post(f"/v1/runs/{run_id}/messages", json=asked, headers=bob)
        assert resumed.status_code == 202, resumed.text
        run = await door.ended(run_id)
    finally:
        await door.door.keyring.revoke(made.key_id)
    [heard] = [json.loads(message["content"]) for message in run["messages"] if message["role"] == "tool"]
    assert (heard["tenant"], heard["subject"]) == ("acme", "bob")


async def test_openais_routes_tell_it_too(door):
    model = {"model": REHEARSAL_MODEL, "toolfleet": {"context": LIE}}
    chat = await post(door, "/v1/chat/completions", messages=[{"role": "user", "content": "call who_asks {}"}], **model)
    response = await post(door, "/v1/responses", input="call who_asks {}", background=True, **model)
    for run_id in (chat["id"].removeprefix("chatcmpl-"), response["id"].removeprefix("resp_")):
        run = await door.ended(run_id)
        assert [json.loads(each["content"]) for each in run["messages"] if each["role"] == "tool"] == [ADA]


async def test_mcp_tells_it_too(door):
    headers = {"authorization": door.client.headers["authorization"]}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{door.url}/mcp", http_client=http)) as client,
    ):
        result = await client.call_tool("who_asks", {})
    assert json.loads(result.content[0].text) == {**ADA, "claimed": None}


# --- from trusted code ------------------------------------------------------------------------------------------------


WHO = AssistantMessage(tool_calls=(RequestedCall(id="1", name="who_asks", arguments="{}"),))
DELEGATE = AssistantMessage(tool_calls=(RequestedCall(id="1", name="clerk", arguments='{"task": "who?"}'),))


def asks_once(reply, name="function"):
    """A model that asks for these calls, and is done when they are answered."""
    return FunctionModel(lambda said: AssistantMessage(content="done") if said[-1].role == "tool" else reply, name=name)


async def test_a_batch_is_whose_its_caller_says(http_fleet):
    async with Orchestrator(settings=http_fleet.settings) as fleet:
        [message] = await fleet.execute(WHO, tenant="acme", subject="ada", context=LIE)
    assert json.loads(message.content) == ADA


async def test_a_child_agents_calls_are_its_callers(http_fleet):
    class Seen(Interceptor):
        def __init__(self):
            self.who = set()

        async def before(self, call):
            self.who.add((call.tenant, call.subject))
            return call

    seen = Seen()
    model, clerks = asks_once(DELEGATE), asks_once(WHO, name="clerks")
    clerk = Agent("clerk", "Asks.", tools=["who_asks"], model=clerks)
    async with Orchestrator(model, agents=[clerk], interceptors=[seen], settings=http_fleet.settings) as fleet:
        run = await fleet.run("?", tenant="acme", subject="ada", context=LIE)
        child = await fleet.get(f"{run.run_id}.1.0")
    assert [json.loads(each.content) for each in child.messages if each.role == "tool"] == [ADA]
    assert seen.who == {("acme", "ada")}


async def test_a_run_that_another_orchestrator_goes_on_with_is_still_whose_it_was(http_fleet):
    async with Orchestrator(settings=http_fleet.settings) as here:
        run_id = await here.submit("?", model="who-asks-elsewhere", tenant="acme", subject="ada", context=LIE)
        elsewhere = asks_once(WHO, name="who-asks-elsewhere")
        async with Orchestrator(elsewhere, settings=http_fleet.settings):
            run = await asyncio.wait_for(here.wait(run_id), WAIT_S)
    assert [json.loads(each.content) for each in run.messages if each.role == "tool"] == [ADA]
