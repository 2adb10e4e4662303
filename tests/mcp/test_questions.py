"""What a call asks before it goes on: its client's user, who approves or answers, or the model that the client has."""

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageResult,
    ElicitResult,
    TextContent,
)

from tests.mcp.doors import LookedAtBefore, served, text
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app
from toolfleet.orchestrator.doors.mcp.rounds import APPROVAL
from toolfleet.orchestrator.fleet_connection import FleetConnection

APPROVES = {APPROVAL: ElicitResult(action="accept")}


def answering(*answers):
    """What a client's user says to one form after another, and the forms that were shown."""
    shown, left = [], list(answers)

    async def elicit(_context, params):
        shown.append(params)
        return left.pop(0)

    return elicit, shown


async def composing(_context, params):
    [message] = params.messages
    said = f"{params.system_prompt}: {message.content.text} in {params.max_tokens}"
    return CreateMessageResult(role="assistant", content=TextContent(text=said), model="a model")


@pytest.fixture(params=["auto", "legacy"])
def era(request):
    return request.param


@pytest.mark.parametrize(("action", "comes_to"), [("accept", "paid 5"), ("decline", "declin"), ("cancel", "cancel")])
async def test_what_the_user_says_of_a_call_that_needs_approval_decides_about_it(address, era, action, comes_to):
    elicit, shown = answering(ElicitResult(action=action))
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        result = await client.call_tool("pay", {"amount": 5, "token": "hush"})
    assert (result.is_error, comes_to in text(result)) == (action != "accept", True)
    [form] = shown
    assert '"amount":5' in form.message.replace(" ", "")
    assert "hush" not in form.message


async def test_a_client_that_shows_no_forms_calls_what_needs_approval_as_before(address, era):
    async with Client(address, mode=era) as client:
        assert "paid 5" in text(await client.call_tool("pay", {"amount": 5}))


async def test_who_may_not_approve_is_not_asked(fleet, era):
    elicit, shown = answering(ElicitResult(action="accept"))
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=lambda _request: Caller(may_approve=False))) as address,
        Client(address, mode=era, elicitation_callback=elicit) as client,
    ):
        refused = await client.call_tool("pay", {"amount": 5})
    assert (refused.is_error, "not allowed" in text(refused), shown) == (True, True, [])


@pytest.mark.parametrize("may_approve", [True, False])
async def test_a_tool_that_needs_approval_since_it_was_looked_at_is_not_called_without(
    fleet, era, may_approve, monkeypatch
):
    monkeypatch.setattr(FleetConnection, "catalog", property(lambda fleet: LookedAtBefore(fleet._services.catalog)))
    elicit, shown = answering(ElicitResult(action="decline"))
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=lambda _request: Caller(may_approve=may_approve))) as address,
        Client(address, mode=era, elicitation_callback=elicit) as client,
    ):
        refused = await client.call_tool("pay", {"amount": 5})
    assert (refused.is_error, "not allowed" in text(refused), len(shown)) == (True, True, may_approve)


async def test_a_tool_asks_its_user_twice_and_goes_on_with_the_answers(address, era):
    monday = ElicitResult(action="accept", content={"day": "Monday"})
    elicit, shown = answering(monday, ElicitResult(action="accept", content={"guests": 4}))
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        assert text(await client.call_tool("book", {"city": "Rome"})) == "Rome on Monday for 4"
    assert [form.message for form in shown] == ["Which day?", "How many?"]


async def test_a_call_that_needs_approval_and_then_asks_is_approved_once(address, era):
    to_ann = ElicitResult(action="accept", content={"name": "Ann"})
    elicit, shown = answering(ElicitResult(action="accept"), to_ann)
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        assert text(await client.call_tool("donate", {"amount": 5})) == "5 to Ann"
    assert len(shown) == 2


async def test_what_only_looks_like_questions_is_a_result(address):
    async with Client(address) as client:
        assert "a result" in text(await client.call_tool("mislabelled", {}))


async def test_an_answer_that_does_not_fit_the_form_is_asked_for_again(address, era):
    never, monday = (ElicitResult(action="accept", content={"day": day}) for day in ("Never", "Monday"))
    elicit, shown = answering(never, monday, ElicitResult(action="accept", content={"guests": 4}))
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        assert text(await client.call_tool("book", {"city": "Rome"})) == "Rome on Monday for 4"
    assert [form.message for form in shown] == ["Which day?", "Which day?", "How many?"]


async def test_a_user_who_does_not_answer_ends_the_call_and_the_model_is_told(address, era):
    elicit, _ = answering(ElicitResult(action="decline"))
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        declined = await client.call_tool("book", {"city": "Rome"})
    assert (declined.is_error, "Which day?" in text(declined)) == (True, True)


async def test_a_tool_asks_the_model_of_its_client(address, era):
    async with Client(address, mode=era, sampling_callback=composing) as client:
        assert text(await client.call_tool("compose", {"about": "rain"})) == "composed: in verse: rain in 50"


async def test_a_client_that_cannot_answer_is_told_what_it_would_need(address, era):
    async with Client(address, mode=era) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("book", {"city": "Rome"})
    assert refused.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.error.data == {"requiredCapabilities": {"elicitation": {}}}


async def test_nobody_approves_without_having_been_asked_about_this_very_call(fleet):
    """With the protocol's own requests, as a client would that makes answers up."""

    def caller_of(request):
        return Caller(tenant=request.headers["x-user"])

    @asynccontextmanager
    async def user(name):
        elicit, _ = answering()
        async with (
            httpx2.AsyncClient(headers={"x-user": name}) as http,
            Client(streamable_http_client(address, http_client=http), elicitation_callback=elicit) as client,
        ):
            yield client

    async def sent(client, amount, state=None):
        return await client.session.call_tool(
            "pay", {"amount": amount}, input_responses=APPROVES, request_state=state, allow_input_required=True
        )

    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=caller_of)) as address,
        user("ann") as ann,
        user("bob") as bob,
    ):
        asked = await sent(ann, 5)
        assert list(asked.input_requests) == [APPROVAL]
        for client, amount, state in (
            (ann, 6, asked.request_state),
            (bob, 5, asked.request_state),
            (ann, 5, "made up"),
        ):
            with pytest.raises(MCPError) as refused:
                await sent(client, amount, state)
            assert refused.value.code == INVALID_PARAMS
        assert "paid 5" in text(await sent(ann, 5, asked.request_state))


@pytest.mark.parametrize("first", ["accept", "decline"])
async def test_an_approval_is_good_for_one_call_however_often_and_wherever_it_is_brought(fleet, first):
    async def brings(client, action):
        given = {APPROVAL: ElicitResult(action=action)}
        try:
            result = await client.session.call_tool("pay", {"amount": 5}, input_responses=given, request_state=state)
        except MCPError as refused:
            return f"{refused.code} {refused}"
        return text(result)

    elicit, _ = answering()
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator)) as one,
        served(mcp_app(orchestrator)) as other,
        Client(one, elicitation_callback=elicit) as here,
        Client(other, elicitation_callback=elicit) as there,
    ):
        asked = await here.session.call_tool("pay", {"amount": 5}, allow_input_required=True)
        state = asked.request_state
        said = [await brings(here, first)] if first == "decline" else []
        said += await asyncio.gather(*(brings(client, "accept") for client in (here, there) for _ in range(3)))
        said.append(await brings(there, "accept"))
    assert sum("paid 5" in each for each in said) == (first == "accept")
    refused = [each for each in said if each.startswith(str(INVALID_PARAMS)) and "good for one call" in each]
    assert len(refused) == len(said) - 1


async def test_what_a_tool_asks_after_an_approval_is_answered_once_too(address):
    elicit, _ = answering()
    async with Client(address, elicitation_callback=elicit) as client:

        async def sent(state=None, **given):
            return await client.session.call_tool(
                "donate", {"amount": 5}, input_responses=given, request_state=state, allow_input_required=True
            )

        approval = await sent()
        asked = await sent(approval.request_state, **APPROVES)
        [question] = asked.input_requests
        to_ann, to_bob = (ElicitResult(action="accept", content={"name": name}) for name in ("Ann", "Bob"))
        assert text(await sent(asked.request_state, **{question: to_ann})) == "5 to Ann"
        with pytest.raises(MCPError, match="good for one call"):
            await sent(asked.request_state, **{question: to_bob})


async def test_what_nobody_can_answer_tells_the_caller_what_was_asked(orchestrator):
    result = await orchestrator.call("book", {"city": "Rome"})
    assert "Which day?" in result.content


async def test_U3_a_running_tool_asks_the_user_of_a_client_that_can_be_asked_meanwhile(address):
    row = ElicitResult(action="accept", content={"row": 12})
    elicit, shown = answering(row, ElicitResult(action="accept", content={"answer": True}))
    async with Client(address, mode="legacy", elicitation_callback=elicit) as client:
        assert text(await client.call_tool("choose_seat", {})) == "row 12, sure"
    assert [form.message for form in shown] == ["Which seat?", "Sure?"]
    assert shown[1].requested_schema["properties"] == {"answer": {"type": "boolean"}}


async def test_U3_a_user_who_declines_is_heard_by_the_running_tool(address):
    elicit, _ = answering(ElicitResult(action="decline"))
    async with Client(address, mode="legacy", elicitation_callback=elicit) as client:
        refused = await client.call_tool("choose_seat", {})
    assert (refused.is_error, "was not answered" in text(refused)) == (True, True)


async def test_U14_a_client_reads_what_a_tool_yields_as_progress(address, era):
    told = []

    async def progress(number, _total, message):
        told.append((number, message))

    async with Client(address, mode=era) as client:
        result = await client.call_tool("recite", {}, progress_callback=progress)
    assert text(result) == "one two three"
    assert "".join(message for _, message in told) == "one two three"
    assert [number for number, _ in told] == sorted({number for number, _ in told})
