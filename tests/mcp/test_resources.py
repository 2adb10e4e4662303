"""Runs as resources: listed, read, completed and watched by their tenant, and by nobody else."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from tests.mcp.doors import served
from toolfleet.connections import connect_async
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app
from toolfleet.orchestrator.doors.mcp.listening import LOOK_EVERY_S, MOST_WATCHED
from toolfleet.orchestrator.doors.mcp.resources import PAGE, RUN
from toolfleet.orchestrator.models.recorded import FunctionModel

WAIT_S = 30


class Waiting(FunctionModel):
    """Answers once a gate is open."""

    def __init__(self, gate):
        super().__init__(lambda _messages: AssistantMessage(content="the answer"))
        self._gate = gate

    async def stream(self, messages, tools, *, extra_body=None):
        await self._gate.wait()
        async for event in super().stream(messages, tools, extra_body=extra_body):
            yield event


@pytest.fixture
async def open_to_users(settings):
    """An orchestrator whose model waits for a word, and its door: whoever sends x-user is that tenant."""
    gate = asyncio.Event()
    async with Orchestrator(Waiting(gate), settings=settings) as orchestrator:
        door = mcp_app(orchestrator, caller_of=lambda request: Caller(tenant=request.headers["x-user"]))
        async with served(door) as address:
            yield orchestrator, gate, address


@asynccontextmanager
async def user(name, address, **options):
    async with (
        httpx2.AsyncClient(headers={"x-user": name}) as http,
        Client(streamable_http_client(address, http_client=http), **options) as client,
    ):
        yield client


async def test_a_run_is_read_by_its_tenant_and_does_not_exist_for_others(open_to_users):
    orchestrator, gate, address = open_to_users
    run_id = await orchestrator.start("hello", tenant="ann", run_id="a run/of ann")
    async with user("ann", address) as ann, user("bob", address) as bob:
        [listed] = (await ann.list_resources()).resources
        assert (listed.title, listed.name) == ("hello", run_id)
        [waiting] = (await ann.read_resource(f"{listed.uri}/answer")).contents
        assert "no answer yet" in waiting.text
        gate.set()
        await orchestrator.wait(run_id)
        [whole] = (await ann.read_resource(listed.uri)).contents
        assert (whole.mime_type, json.loads(whole.text)["answer"]) == ("application/json", "the answer")
        [answer] = (await ann.read_resource(f"{listed.uri}/answer")).contents
        assert (answer.mime_type, answer.text) == ("text/plain", "the answer")

        assert (await bob.list_resources()).resources == []
        told = [await refusal(bob, uri) for uri in (listed.uri, f"{listed.uri}/answer", "toolfleet://runs/none")]
        assert told == [(INVALID_PARAMS, "Resource not found")] * 3


async def test_a_large_result_is_read_by_its_tenant_and_does_not_exist_for_others(fleet):
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=lambda request: Caller(tenant=request.headers["x-user"]))) as address,
        user("ann", address) as ann,
        user("bob", address) as bob,
    ):
        called = await ann.call_tool("echo", {"value": "x" * 300_000})
        [link] = [block for block in called.content if block.type == "resource_link"]
        [whole] = (await ann.read_resource(link.uri)).contents
        assert whole.text == "x" * 300_000
        made_up = link.uri[:-4] + "0000"
        assert [await refusal(bob, link.uri), await refusal(ann, made_up)] == [
            (INVALID_PARAMS, "Resource not found")
        ] * 2


async def test_runs_are_listed_page_by_page_and_their_ids_completed(open_to_users):
    orchestrator, gate, address = open_to_users
    gate.set()
    ids = [f"run-{number:03}" for number in range(PAGE + 3)]
    for run_id in ids:
        await orchestrator.start("hello", tenant="ann", run_id=run_id)
    async with user("ann", address) as ann, user("bob", address) as bob:
        first = await ann.list_resources()
        await orchestrator.start("hello", tenant="ann", run_id="begun meanwhile")
        second = await ann.list_resources(cursor=first.next_cursor)
        assert (len(first.resources), len(second.resources), second.next_cursor) == (PAGE, 3, None)
        assert {each.name for each in (*first.resources, *second.resources)} == set(ids)
        with pytest.raises(MCPError, match="cursor"):
            await ann.list_resources(cursor="made up")

        of_runs, begun = ResourceTemplateReference(uri=RUN), {"name": "run_id", "value": "RUN-00"}
        assert sorted((await ann.complete(of_runs, begun)).completion.values) == ids[:10]
        assert (await bob.complete(of_runs, begun)).completion.values == []
        with pytest.raises(MCPError, match="no resource template"):
            await ann.complete(ResourceTemplateReference(uri="made://{up}"), begun)


async def test_a_client_that_listens_to_a_run_hears_of_it_and_of_no_other_tenants(open_to_users):
    orchestrator, gate, address = open_to_users
    await orchestrator.start("hello", tenant="ann", run_id="of-ann")
    uri = RUN.format(run_id="of-ann")
    async with (
        user("ann", address) as ann,
        user("bob", address) as bob,
        ann.listen(resource_subscriptions=[uri, "toolfleet://runs/none"]) as to_ann,
        bob.listen(resource_subscriptions=[uri]) as to_bob,
    ):
        assert (to_ann.honored.resource_subscriptions, to_bob.honored.resource_subscriptions) == ([uri], None)
        gate.set()
        assert (await asyncio.wait_for(anext(to_ann), WAIT_S)).uri == uri


async def test_a_session_subscribes_to_a_run_until_it_unsubscribes(open_to_users):
    orchestrator, gate, address = open_to_users
    changed = asyncio.Queue()

    async def hear(message):
        if isinstance(message, ResourceUpdatedNotification):
            changed.put_nowait(message.params.uri)

    for run_id in ("heard", "unheard"):
        await orchestrator.start("hello", tenant="ann", run_id=run_id)
    heard, unheard = RUN.format(run_id="heard"), RUN.format(run_id="unheard")
    async with user("ann", address, mode="legacy", message_handler=hear) as ann:
        for uri in (unheard, heard, heard):
            await subscribe(ann, uri)
        await ann.session.send_request(UnsubscribeRequest(params=UnsubscribeRequestParams(uri=unheard)), EmptyResult)
        gate.set()
        assert await asyncio.wait_for(changed.get(), WAIT_S) == heard
        with pytest.raises(MCPError, match="not found"):
            await subscribe(ann, "toolfleet://runs/none")
    assert changed.empty()


async def test_a_session_watches_so_many_resources_and_no_more(open_to_users):
    orchestrator, _, address = open_to_users
    uris = [RUN.format(run_id=f"run-{number}") for number in range(MOST_WATCHED + 1)]
    for number in range(MOST_WATCHED + 1):
        await orchestrator.start("hello", tenant="ann", run_id=f"run-{number}")
    async with user("ann", address, mode="legacy") as ann:
        for uri in uris[:-1]:
            await subscribe(ann, uri)
        with pytest.raises(MCPError, match="at most"):
            await subscribe(ann, uris[-1])
    async with user("ann", address) as ann, ann.listen(resource_subscriptions=uris) as listening:
        assert listening.honored.resource_subscriptions == uris[:-1]


@asynccontextmanager
async def together(settings):
    """What is sent meanwhile is looked up together, when the store answers again."""
    async with connect_async(settings) as client:
        await client.client_pause(1000)
    yield


async def test_subscriptions_that_are_made_at_the_same_time_take_no_more_places_than_others(open_to_users, settings):
    orchestrator, gate, address = open_to_users
    changed = asyncio.Queue()

    async def hear(message):
        if isinstance(message, ResourceUpdatedNotification):
            changed.put_nowait(message.params.uri)

    uris = [RUN.format(run_id=f"at-once-{number}") for number in range(MOST_WATCHED + 4)]
    for number in range(MOST_WATCHED + 4):
        await orchestrator.start("hello", tenant="ann", run_id=f"at-once-{number}")
    async with user("ann", address, mode="legacy", message_handler=hear) as ann:
        async with together(settings):
            said = await asyncio.gather(*(subscribe(ann, uri) for uri in uris), return_exceptions=True)
        assert sum(isinstance(each, MCPError) for each in said) == 4
    async with user("ann", address, mode="legacy", message_handler=hear) as ann:
        async with together(settings):
            await asyncio.gather(*(subscribe(ann, uris[0]) for _ in range(20)))
        await ann.session.send_request(UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uris[0])), EmptyResult)
        await subscribe(ann, uris[1])
        gate.set()
        assert await asyncio.wait_for(changed.get(), WAIT_S) == uris[1]
        await asyncio.sleep(2 * LOOK_EVERY_S)  # whoever watches still would have told by now
    assert uris[0] not in {changed.get_nowait() for _ in range(changed.qsize())}


async def subscribe(client, uri):
    """As in the revisions that have such a request; the client's own method warns that the newest has none."""
    await client.session.send_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult)


async def refusal(client, uri):
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri)
    return refused.value.code, refused.value.error.message
