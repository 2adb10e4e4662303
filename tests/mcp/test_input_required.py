"""What a running tool asks (`ctx.ask`), answered by clients: of a task, in rounds, and on the session."""

import asyncio
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, ElicitResult
from processes import alive, kill, replenish
from pydantic import ConfigDict

from tests.mcp.doors import (
    CancelTask,
    CreatedTask,
    TaskParams,
    TasksExtension,
    UpdateParams,
    UpdateTask,
    nobody,
    served,
    text,
    told_task,
    until,
    until_task_is,
)
from tests.mcp.news import listening, until_told
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app
from toolfleet.orchestrator.errors import QuestionClosed


def knowing_tasks(where):
    return Client(where, extensions=[TasksExtension()], elicitation_callback=nobody)


def accepts(**content):
    return {"action": "accept", "content": content}


async def begun(client, tool, **arguments):
    """The id of a call that became a task."""
    created = await client.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(created, CreatedTask)
    return created.task_id


async def asking(client, task_id, message):
    """The key and the form of what a task asks in these words."""
    told = await until(client, task_id, lambda told: message in messages(told))
    return messages(told)[message], told.input_requests[messages(told)[message]].params


def messages(told):
    return {request.params.message: key for key, request in (told.input_requests or {}).items()}


async def update(client, task_id, **responses):
    """`tasks/update`; its acknowledgement, as it came."""
    request = UpdateTask(params=UpdateParams(task_id=task_id, input_responses=responses))
    return (await client.session.send_request(request, Anything)).model_dump(
        by_alias=True, exclude_none=True, exclude={"meta"}
    )


class Anything(types.Result):
    """A result with whatever it has."""

    model_config = ConfigDict(extra="allow")


ACKNOWLEDGED = {"resultType": "complete"}


@pytest.fixture
def client(address):
    return knowing_tasks(address)


# --- tasks --------------------------------------------------------------------------------------------------------


async def test_U3_a_task_that_asks_is_answered_goes_on_and_ends_once(client, orchestrator):
    async with client:
        task_id = await begun(client, "transfer", amount=5)
        key, form = await asking(client, task_id, "Which account?")
        assert (form.mode, form.requested_schema["required"]) == ("form", ["name"])
        assert form.requested_schema["properties"]["name"]["enum"] == ["savings", "checking"]
        assert form.requested_schema["properties"]["owner"]["enum"] == ["ann", "bob"]  # nothing is left to look up
        assert (await told_task(client, task_id)).status_message == "asks: Which account?"
        assert await update(client, task_id, **{key: accepts(name="savings")}) == ACKNOWLEDGED
        following, form = await asking(client, task_id, "Transfer 5 from savings?")
        assert (following != key, form.requested_schema["properties"]) == (True, {"answer": {"type": "boolean"}})
        # What was answered is asked no more, and nothing changes what was said.
        assert await update(client, task_id, **{key: accepts(name="checking")}) == ACKNOWLEDGED
        assert await update(client, task_id, **{following: accepts(answer=True)}) == ACKNOWLEDGED
        completed = await until_task_is(client, task_id, "completed")
        assert text(completed.result).startswith("5 from savings, attempt 1 of ")
        assert await update(client, task_id, **{following: accepts(answer=False)}) == ACKNOWLEDGED
        again = await told_task(client, task_id)
        assert (again.status, again.input_requests, again.result) == ("completed", None, completed.result)
        call_id = text(completed.result).rpartition(" ")[2]
        with pytest.raises(QuestionClosed, match="answered already by mcp client"):
            await orchestrator.answer(f"{call_id}:1", {"name": "checking"})


async def test_U3_a_call_becomes_a_task_as_soon_as_it_asks_and_is_answered_bit_by_bit(client):
    async with client:
        task_id = await begun(client, "seat_two")  # a minute before its tool's patience ends
        both = await until(client, task_id, lambda told: len(messages(told)) == 2)
        ann, bob = messages(both)["Ann?"], messages(both)["Bob?"]
        assert await update(client, task_id, **{ann: accepts(answer=1), "made up": "whatever"}) == ACKNOWLEDGED
        left = await told_task(client, task_id)
        assert (left.status, messages(left)) == ("input_required", {"Bob?": bob})
        await update(client, task_id, **{ann: accepts(answer=3), bob: accepts(answer=2)})
        assert text((await until_task_is(client, task_id, "completed")).result).startswith("ann 1, bob 2, in ")


async def test_U3_an_update_that_does_not_fit_says_why_and_answers_nothing(client):
    async with client:
        task_id = await begun(client, "seat_two")
        both = await until(client, task_id, lambda told: len(messages(told)) == 2)
        ann, bob = messages(both)["Ann?"], messages(both)["Bob?"]
        for garbage in (accepts(answer="x"), accepts(), {"action": "accept", "content": [1]}, {"action": "?"}, 7, None):
            with pytest.raises(MCPError) as refused:
                await update(client, task_id, **{ann: garbage, bob: accepts(answer=2)})
            assert (refused.value.code, list(refused.value.error.data["faults"])) == (INVALID_PARAMS, [ann])
        assert messages(await told_task(client, task_id)) == {"Ann?": ann, "Bob?": bob}
        await update(client, task_id, **{ann: accepts(answer=9007199254740993), bob: accepts(answer=2)})
        completed = await until_task_is(client, task_id, "completed")
        assert text(completed.result).startswith("ann 9007199254740993, ")


@pytest.mark.parametrize(("action", "says"), [("decline", "the user declined"), ("cancel", "the user put it aside")])
async def test_U3_a_user_who_does_not_answer_a_task_is_heard_by_its_tool(client, action, says):
    async with client:
        task_id = await begun(client, "transfer", amount=5)
        key, _ = await asking(client, task_id, "Which account?")
        await update(client, task_id, **{key: {"action": action}})
        completed = await until_task_is(client, task_id, "completed")
        assert (completed.result.is_error, says in text(completed.result)) == (True, True)


async def test_U3_a_task_that_asks_is_cancelled_and_asks_no_more(client, orchestrator):
    async with client:
        task_id = await begun(client, "transfer", amount=5)
        key, _ = await asking(client, task_id, "Which account?")
        await client.session.send_request(CancelTask(params=TaskParams(task_id=task_id)), Anything)
        cancelled = await until_task_is(client, task_id, "cancelled")
        assert cancelled.input_requests is None
        assert await update(client, task_id, **{key: accepts(name="savings")}) == ACKNOWLEDGED
        assert (await told_task(client, task_id)).status == "cancelled"


async def test_U3_who_listens_to_a_task_is_told_what_it_asks_and_how_it_ends(fleet):
    async with door_of_users(fleet) as address, user(address, "ann") as (ann, http):
        task_id = await begun(ann, "seat_two")
        async with listening(http, address, [task_id], extensions=None, elicitation={}) as frames:
            await until_told(frames, status="input_required")
            both = await until(ann, task_id, lambda told: len(messages(told)) == 2)
            await update(ann, task_id, **{key: accepts(answer=1) for key in messages(both).values()})
            ended = await until_told(frames, status="completed")
        assert ended["params"]["result"]["content"][0]["text"].startswith("ann 1, bob 1, ")


@pytest.mark.parametrize("door", ["another user", "another tool", "no approval"])
async def test_U3_who_may_not_answer_a_task_neither_sees_what_it_asks_nor_answers(fleet, door):
    async with (
        door_of_users(fleet) as address,
        user(address, "ann") as (ann, _),
        user(address, "bob" if door == "another user" else "ann", **{"x-without": door}) as (other, _),
    ):
        task_id = await begun(ann, "transfer", amount=5)
        key, _ = await asking(ann, task_id, "Which account?")
        if door == "another user":
            with pytest.raises(MCPError) as unknown:
                await told_task(other, task_id)
            assert unknown.value.code == INVALID_PARAMS
        else:
            seen = await told_task(other, task_id)
            assert (seen.status, seen.input_requests) == ("working", None)
            assert "another door: Which account? (question " in seen.status_message
        with pytest.raises(MCPError) as refused:
            await update(other, task_id, **{key: accepts(name="checking")})
        assert refused.value.code == (INVALID_PARAMS if door == "another user" else INVALID_REQUEST)
        await update(ann, task_id, **{key: {"action": "decline"}})
        await until_task_is(ann, task_id, "completed")


async def test_U3_what_a_client_cannot_show_is_answered_at_another_door(address, client, orchestrator):
    async with client:
        task_id = await begun(client, "map_out")
        told = await until(
            client, task_id, lambda told: "another door: Where? (question" in (told.status_message or "")
        )
        assert (told.status, told.input_requests) == ("working", None)
        question_id = told.status_message.partition("(question ")[2].rstrip(")")
        await orchestrator.answer(question_id, [{"x": 1, "y": 2}], by="ann")
        assert "x=1" in text((await until_task_is(client, task_id, "completed")).result)
        async with Client(address, extensions=[TasksExtension()]) as formless:
            task_id = await begun(formless, "transfer", amount=5)
            told = await until(formless, task_id, lambda told: "Which account?" in (told.status_message or ""))
            assert told.status == "working"
            await formless.session.send_request(CancelTask(params=TaskParams(task_id=task_id)), Anything)


async def test_U3_a_task_that_asks_outlives_server_and_worker_and_of_two_answers_one_counts(fleet):
    @asynccontextmanager
    async def server():
        async with (
            Orchestrator(settings=fleet.settings) as its_own,
            served(mcp_app(its_own)) as address,
            knowing_tasks(address) as client,
        ):
            yield client

    async with server() as first:
        task_id = await begun(first, "transfer", amount=5)
        key, _ = await asking(first, task_id, "Which account?")
    async with server() as one, server() as other:
        assert (await asking(one, task_id, "Which account?"))[0] == key
        kill(*alive(fleet, "io"))
        answers = {"savings": one, "checking": other}
        await asyncio.gather(*(update(each, task_id, **{key: accepts(name=name)}) for name, each in answers.items()))
        await asyncio.to_thread(replenish, fleet, io=1, long=1)
        sure = await until(other, task_id, lambda told: any("Transfer 5" in said for said in messages(told)))
        [(said, following)] = messages(sure).items()
        await asyncio.gather(*(update(each, task_id, **{following: accepts(answer=True)}) for each in (one, other)))
        ends = [text((await until_task_is(each, task_id, "completed")).result) for each in (one, other)]
    account = said.removeprefix("Transfer 5 from ").rstrip("?")
    assert (account in answers, ends[0] == ends[1], f"5 from {account}, attempt 1" in ends[0]) == (True, True, True)


async def test_U3_an_approval_comes_before_the_task_and_the_question_in_it(client):
    async with client:
        asked = await client.session.call_tool("pay_from", {"amount": 5}, allow_input_required=True)
        [approval] = asked.input_requests
        created = await client.session.call_tool(
            "pay_from",
            {"amount": 5},
            input_responses={approval: ElicitResult(action="accept")},
            request_state=asked.request_state,
            allow_claimed=True,
        )
        key, _ = await asking(client, created.task_id, "Which account?")
        await update(client, created.task_id, **{key: accepts(answer="savings")})
        assert "5 from savings" in text((await until_task_is(client, created.task_id, "completed")).result)


# --- clients that know no tasks -----------------------------------------------------------------------------------


def saying(*answers):
    """What a client's user says to one form after another, and the forms that were shown."""
    shown, left = [], list(answers)

    async def elicit(_context, params):
        shown.append(params.message)
        return left.pop(0)

    return elicit, shown


def fills(**content):
    return ElicitResult(action="accept", content=content)


@pytest.fixture(params=["auto", "legacy"])
def era(request):
    return request.param


async def test_U3_a_user_is_asked_while_the_client_waits_and_again_where_an_answer_does_not_fit(address, era):
    elicit, shown = saying(fills(row="twelve"), fills(row=12), fills(answer=True))
    async with Client(address, mode=era, elicitation_callback=elicit) as client:
        assert text(await client.call_tool("choose_seat", {})) == "row 12, sure"
    assert shown == [
        "Which seat?",
        "Which seat? (The answer does not fit: $.row: 'twelve' is not of type 'integer')",
        "Sure?",
    ]


async def test_U3_rounds_come_back_to_the_same_call_however_often_they_are_sent(address):
    async with Client(address, elicitation_callback=nobody) as client:

        async def sent(state=None, **given):
            return await client.session.call_tool(
                "pay_from", {"amount": 5}, input_responses=given, request_state=state, allow_input_required=True
            )

        approval = await sent()
        [key] = approval.input_requests
        asked = await sent(approval.request_state, **{key: ElicitResult(action="accept")})
        [question] = asked.input_requests
        nothing_said = await sent(asked.request_state)
        assert list(nothing_said.input_requests) == [question]
        first = text(await sent(asked.request_state, **{question: fills(answer="savings")}))
        assert first.startswith("5 from savings, in ")
        for state in (asked.request_state, nothing_said.request_state):
            assert text(await sent(state, **{question: fills(answer="checking")})) == first
        with pytest.raises(MCPError, match="good for one call"):
            await sent(approval.request_state, **{key: ElicitResult(action="accept")})


async def test_U3_a_client_that_shows_no_forms_reads_where_to_answer_and_gets_the_result_later(
    address, era, orchestrator
):
    async with Client(address, mode=era) as client:
        told = await client.call_tool("choose_seat", {})
        assert "waits for a person's answer at another door: Which seat? (question " in text(told)
        call_id = text(told).partition("(question ")[2].partition(":")[0]
        await orchestrator.answer(call_id, {"row": 3}, by="ann")
        async with asyncio.timeout(20):
            while not (asked := (await orchestrator.questions(call_id=call_id)).waiting):
                await asyncio.sleep(0.02)
        await orchestrator.answer(asked[0].question_id, False, by="ann")
        ended = await client.call_tool("task_result", {"task_id": told.structured_content["task_id"]})
    assert text(ended) == "row 3, unsure"


# --- users --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def door_of_users(fleet):
    def caller_of(request):
        lacks = request.headers.get("x-without", "")
        return Caller(
            tenant=request.headers["x-user"],
            may_call=lambda tool: (lacks, tool) != ("another tool", "transfer"),
            may_approve=lacks != "no approval",
        )

    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=caller_of)) as address,
    ):
        yield address


@asynccontextmanager
async def user(address, name, **headers):
    async with (
        httpx2.AsyncClient(headers={"x-user": name, **headers}, timeout=30) as http,
        knowing_tasks(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client, http
