"""A server that is there and refuses: at every door that is an outage, which is waited for or told as one."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest
from fleets import asking, fleet_of

from tests.http.fleet_of_doors import api_of
from toolfleet import FunctionModel
from toolfleet.errors import BrokerUnreachable, StoreUnreachable
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator import Approval, Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.testing import FaultyServer

REFUSED_FOR_S = 1.0
WAIT_S = 60
CLIENT = {"name": "tests", "version": "1"}
REFUSALS = ["out_of_memory", "without_replicas", "as_replica", "unable_to_save"]


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(server):
    with fleet_of(pools={"io": 1, "cpu": 1}, redis_url=server.url, lease_s=3, heartbeat_s=0.5) as running:
        yield running


def said(messages):
    """Asks for what its question names, once, and says then what came back."""
    if isinstance(messages[-1], ToolMessage):
        return AssistantMessage(content=messages[-1].content)
    name, arguments = json.loads(messages[0].content)
    return AssistantMessage(tool_calls=(RequestedCall(id="a", name=name, arguments=json.dumps(arguments)),))


def question(name, **arguments):
    return json.dumps([name, arguments])


@pytest.fixture
async def orchestrator(fleet):
    async with Orchestrator(
        FunctionModel(said), settings=fleet.settings, needs_approval=lambda call: "asked" in call.arguments
    ) as running:
        await running.catalog.offered()
        yield running


@contextlib.asynccontextmanager
async def refusing(server, how):
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, getattr(server, how)())
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


async def while_refused(server, how, *begin):
    """What each comes to, begun while the server refuses, some time after which it takes writes again."""
    async with refusing(server, how):
        under_way = [asyncio.create_task(each()) for each in begin]
        await asyncio.wait(under_way, timeout=REFUSED_FOR_S)
    async with asyncio.timeout(WAIT_S):
        return await asyncio.gather(*under_way, return_exceptions=True)


async def waiting_for_approval(orchestrator):
    run_id = await orchestrator.start(question("echo", value="asked"))
    async with asyncio.timeout(WAIT_S):
        while not (calls := (await orchestrator.get(run_id)).awaiting_approval):
            await asyncio.sleep(0.02)
    return run_id, calls[0].call_id


@pytest.mark.parametrize("how", REFUSALS)
async def test_all_that_python_can_ask_for_waits_or_says_that_the_store_refuses(server, orchestrator, stage, how):
    ended = await orchestrator.run(question("echo", value=1))
    _, approved = await waiting_for_approval(orchestrator)
    waits, _ = await waiting_for_approval(orchestrator)
    playing = asyncio.create_task(orchestrator.execute(asking(("play_once", {"stage": stage.path}))))
    actor = await stage.enters()

    outcomes = await while_refused(
        server,
        how,
        lambda: orchestrator.run(question("echo", value=2)),
        lambda: orchestrator.start(question("echo", value=2)),
        lambda: orchestrator.submit(question("echo", value=2), model="nobody"),
        lambda: orchestrator.call("echo", {"value": 3}),
        lambda: orchestrator.call("echo", {"value": 3}, patience_s=0),
        lambda: orchestrator.execute(asking(("echo", {"value": 4}))),
        lambda: orchestrator.approve(approved, Approval(granted=True)),
        lambda: orchestrator.cancel(waits),
        lambda: orchestrator.resume(ended.run_id, "again"),
        lambda: orchestrator.get(ended.run_id),
        orchestrator.runs,
        lambda: orchestrator.calls(ended.run_id),
        lambda: orchestrator.delete(ended.run_id),
    )
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, StoreUnreachable | BrokerUnreachable)
    assert not any("internal error" in str(outcome) for outcome in outcomes)
    actor.returns("once")
    assert [answer.content for answer in await playing] == ["once"]
    assert not orchestrator.ailing


@pytest.mark.parametrize("how", REFUSALS)
async def test_an_effect_that_has_happened_is_never_told_as_cancelled(server, orchestrator, stage, how):
    run_id = await orchestrator.start(question("play_once", stage=stage.path))
    actor = await stage.enters()
    async with refusing(server, how):
        actor.returns("has happened")
        assert await actor.leaves() == "returned"
        cancelling = asyncio.create_task(orchestrator.cancel(run_id))
        await asyncio.wait([cancelling], timeout=REFUSED_FOR_S)
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(cancelling, return_exceptions=True)
        run = await orchestrator.wait(run_id)
        while (await orchestrator.calls(run_id))[0].result is None:
            await asyncio.sleep(0.05)
    [call] = await orchestrator.calls(run_id)
    assert call.result.type == "returned", call
    assert call.result.content == "has happened"
    assert run.state in {State.DONE, State.CANCELLED}


@pytest.mark.parametrize("how", REFUSALS)
async def test_every_route_waits_or_answers_503_with_when_to_come_again(server, fleet, how):
    async with api_of(fleet.settings, FunctionModel(said)) as api:
        client = api.client
        run_id = await api.begin(question("echo", value=1))
        await api.ended(run_id)
        other_id = await api.begin(question("echo", value=1))
        await api.ended(other_id)
        slow_id = await api.begin(question("wait", seconds=30))
        asked = {"question": question("echo", value=2)}
        messages = {"model": "function", "messages": [{"role": "user", "content": question("echo", value=3)}]}
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        }
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"value": 5}},
        }
        accepts = {"accept": "application/json, text/event-stream"}
        begun = await client.post("/mcp", json=initialize, headers=accepts)
        in_session = {**accepts, "mcp-session-id": begun.headers["mcp-session-id"]}
        responses = await while_refused(
            server,
            how,
            lambda: client.post("/v1/runs", json=asked),
            lambda: client.post("/v1/runs", json=asked, headers={"idempotency-key": f"key-{how}"}),
            lambda: client.post("/v1/tools/echo/call", json={"arguments": {"value": 1}}),
            lambda: client.post("/v1/tools/echo/call", json={"arguments": {"value": 1}, "patience_s": 0}),
            lambda: client.post("/v1/chat/completions", json=messages),
            lambda: client.post("/v1/responses", json={"model": "function", "input": question("echo", value=4)}),
            lambda: client.get("/v1/runs"),
            lambda: client.get(f"/v1/runs/{run_id}"),
            lambda: client.post(f"/v1/runs/{run_id}/messages", json={"question": "again"}),
            lambda: client.get("/v1/workers"),
            lambda: client.get("/v1/models"),
            lambda: client.post("/mcp", json=initialize, headers=accepts),
            lambda: client.post("/mcp", json=call, headers=in_session),
            lambda: client.delete(f"/v1/runs/{other_id}"),
            lambda: client.post(f"/v1/runs/{slow_id}/cancel", json={}),
        )
        for response in responses:
            assert isinstance(response, httpx.Response), response
            if response.status_code == 503:
                assert "refuses" in response.text, response.text
                assert response.headers["retry-after"], response.request.url
            else:
                assert response.status_code < 300, (response.request.url, response.text)
        assert (await client.get("/readyz")).status_code == 200
