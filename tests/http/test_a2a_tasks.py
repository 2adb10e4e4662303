"""The official client of A2A against /a2a: tasks begun, followed, found again, cancelled, gone on with."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from a2a.types import Message, Part, StreamResponse, TaskState, TaskStatus
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from stages import Stage

from tests.http.a2a_agents import ASKS, CANCELED, COMPLETED, FAILED, WORKING, Agent, data, said, text_of
from tests.http.fleet_of_doors import api_of
from toolfleet.orchestrator.doors.http.key_store import Scope

ADD = 'call add {"a": 2, "b": 3}'
PAY = 'call pay {"amount": 5}'


def playing(stage: Stage) -> str:
    """A call that ends when the test says so."""
    return f'call play {{"stage": "{stage.path}"}}'


def answer_heard(events: list[StreamResponse]) -> str:
    """The answer as a client puts it together that knows what `append` means."""
    heard = ""
    for event in events:
        if event.WhichOneof("payload") == "artifact_update" and event.artifact_update.artifact.artifact_id == "answer":
            text = event.artifact_update.artifact.parts[0].text
            heard = heard + text if event.artifact_update.append else text
    return heard


def states_of(events: list[StreamResponse]) -> list[TaskState]:
    return [each.status_update.status.state for each in events if each.HasField("status_update")]


def status_at_the_end(events: list[StreamResponse]) -> TaskStatus:
    """What a stream has ended with: the task itself, where nothing has come behind it."""
    last = events[-1]
    return last.status_update.status if last.HasField("status_update") else last.task.status


async def first_of(events) -> StreamResponse:
    return await anext(aiter(events))


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")])
async def test_U12_a_message_becomes_a_task_in_either_binding_and_by_the_older_protocol(api, stage, binding, version):
    tenant = f"tenant-{secrets.token_hex(4)}"
    async with Agent.of_tenant(api, tenant, Scope.RUN, binding=binding, version=version) as agent:
        first = said(f'say "one moment" {playing(stage)} then {ADD}')
        streaming = agent.streaming(first)
        events = [await anext(streaming)]
        begun = events[0].task
        assert begun.status.state == WORKING
        (await stage.enters()).returns()
        events += await _all(streaming)
        task = await agent.get(begun.id)
        assert states_of(events)[-1] == task.status.state == COMPLETED
        assert task.context_id == begun.context_id
        assert answer_heard(events) == text_of(task)
        assert text_of(task).endswith("add: 5")
        assert [each.message_id for each in task.history] == [first.message_id, f"{task.id}.1"]
        assert [*begun.history, *messages_told(events)] == list(task.history)
        assert task.history[1].parts[0].text == "one moment"
        stored = await api.door.orchestrator.get(task.id)
        assert (stored.terms.tenant, stored.answer) == (tenant, text_of(task))
        with pytest.raises(TaskNotCancelableError):
            await agent.cancel(task.id)
        with pytest.raises(UnsupportedOperationError):
            await first_of(agent.subscribed(task.id))


async def test_U12_whoever_asks_in_one_piece_waits_for_the_end_or_does_not(agent, stage):
    task = await agent.ask(said(ADD))
    assert (task.status.state, text_of(task).splitlines()[-1]) == (COMPLETED, "add: 5")
    assert task.status.timestamp.seconds > 0
    begun = await agent.ask(said(playing(stage)), return_immediately=True)
    assert begun.status.state == WORKING
    await stage.enters()
    ended = await agent.cancel(begun.id)
    assert (ended.status.state, ended.status.message.parts[0].text) == (CANCELED, "cancelled by request")
    with pytest.raises(TaskNotCancelableError):
        await agent.cancel(begun.id)


async def test_U12_the_same_message_sent_again_is_the_same_task_and_another_one_of_its_id_is_refused(api, agent):
    message = said(ADD)
    tasks = await asyncio.gather(*(agent.ask(message) for _ in range(5)))
    tasks.append(await agent.ask(message))
    assert len({task.id for task in tasks}) == 1
    assert {text_of(task) for task in tasks} == {text_of(tasks[0])}
    assert (await agent.listed()).total_size == 1
    with pytest.raises(InvalidParamsError, match="used for another message"):
        await agent.ask(said("hello", message_id=message.message_id))
    async with Agent.of_tenant(api, "another", Scope.RUN) as other:  # whose ids are theirs
        assert (await other.ask(said(ADD, message_id=message.message_id))).id != tasks[0].id


async def test_U12_who_subscribes_again_after_a_cut_loses_nothing(agent, stage):
    begun = (await first_of(agent.streaming(said(f'{playing(stage)} then say "and then" {ADD}')))).task  # and hangs up
    actor = await stage.enters()
    subscribed = agent.subscribed(begun.id)
    events = [await anext(subscribed)]
    actor.returns()
    events += [event async for event in subscribed]
    task = await agent.get(begun.id)
    assert events[0].task.status.state == WORKING
    assert task.status.state == COMPLETED
    assert answer_heard(events) == text_of(task)
    assert "and then" in [each.parts[0].text for each in messages_told(events)]
    assert [*events[0].task.history, *messages_told(events)] == list(task.history)


def messages_told(events: list[StreamResponse]) -> list[Message]:
    updates = [each.status_update.status for each in events if each.HasField("status_update")]
    return [each.message for each in updates if each.HasField("message")]


async def test_U12_all_who_listen_are_told_the_same(agent, stage):
    begun = (await first_of(agent.streaming(said(f"{playing(stage)} then {ADD}")))).task
    actor = await stage.enters()
    listening = [agent.subscribed(begun.id) for _ in range(3)]
    heard = [[await anext(each)] for each in listening]
    await listening[2].aclose()  # which is nobody else's business
    actor.returns()
    told = await asyncio.gather(*(_all(each) for each in listening[:2]))
    assert told[0] == told[1]
    assert heard[0] == heard[1]
    assert states_of(told[0])[-1] == COMPLETED


async def _all(events) -> list[StreamResponse]:
    return [event async for event in events]


async def test_U12_a_server_that_stops_says_so_and_its_tasks_are_followed_at_another(http_fleet, model, api, stage):
    tenant = "followed-elsewhere"
    async with api_of(http_fleet.settings, model) as other, Agent.of_tenant(other, tenant, Scope.RUN) as elsewhere:
        async with Agent.of_tenant(api, tenant, Scope.RUN) as here:
            listening = here.streaming(said(playing(stage)))
            begun = (await anext(listening)).task
            actor = await stage.enters()
            following = elsewhere.subscribed(begun.id)
            assert (await anext(following)).task.id == begun.id
            api.door.close_streams()
            with pytest.raises(InternalError, match="this server stops"):
                await _all(listening)
        actor.returns()
        assert answer_heard(await _all(following)) == text_of(await elsewhere.get(begun.id))


async def test_U12_a_call_that_waits_for_approval_is_asked_about_and_answered_by_a_message(agent):
    events = await agent.stream(said(PAY))
    asked = status_at_the_end(events)
    assert asked.state == ASKS
    assert "pay waits for your approval" in asked.message.parts[0].text
    [wanted] = asked.message.parts[1].data.struct_value["approvals"]
    assert (wanted["tool"], wanted["arguments"]) == ("pay", '{"amount": 5}')
    task_id = events[0].task.id
    answer = said("yes", task_id=task_id)
    task = await agent.ask(answer)
    assert (task.status.state, text_of(task).splitlines()[-1]) == (COMPLETED, "pay: paid 5")
    assert await agent.ask(answer) == task  # sent again, it changes nothing
    with pytest.raises(UnsupportedOperationError):
        await agent.ask(said("yes", task_id=task_id))


async def test_U12_a_repeated_yes_does_not_approve_what_waits_by_then(agent):
    begun = await agent.ask(said(f'{PAY} then call pay {{"amount": 6}}'))
    yes = said("yes", task_id=begun.id)
    assert (await agent.ask(yes)).status.state == ASKS
    again = await agent.ask(yes)
    assert again.status.state == ASKS
    [wanted] = again.status.message.parts[1].data.struct_value["approvals"]
    assert wanted["arguments"] == '{"amount": 6}'
    denied = await agent.ask(said("rather not today", task_id=begun.id))
    assert "rather not today" in text_of(denied)


async def test_U12_several_that_wait_are_answered_by_their_ids(agent):
    begun = await agent.ask(said(f'{PAY} call pay {{"amount": 6}}'))
    with pytest.raises(InvalidParamsError, match="2 things wait"):
        await agent.ask(said("yes", task_id=begun.id))
    first, second = begun.status.message.parts[1].data.struct_value["approvals"]
    decided = await agent.ask(
        said(
            data(
                {"call_id": first["call_id"], "granted": True, "arguments": '{"amount": 7}', "digest": first["digest"]}
            ),
            data({"call_id": second["call_id"], "granted": False, "reason": "too much"}),
            task_id=begun.id,
        )
    )
    assert "paid 7" in text_of(decided)
    assert "too much" in text_of(decided)


async def test_U12_a_question_of_a_tool_is_answered_by_a_message_and_what_does_not_fit_is_refused(agent):
    events = await agent.stream(said("call choose_account {}"))
    asked = status_at_the_end(events)
    assert asked.state == ASKS
    [question] = asked.message.parts[1].data.struct_value["questions"]
    assert list(question["answer_schema"]["enum"]) == ["savings", "checking"]
    task_id = events[0].task.id
    with pytest.raises(InvalidParamsError, match="piggy"):
        await agent.ask(said("piggy", task_id=task_id))
    answered = await agent.ask(
        said(data({"question_id": question["question_id"], "answer": "savings"}), task_id=task_id)
    )
    assert answered.status.state == COMPLETED
    assert "savings" in text_of(answered)


async def test_U12_what_is_asked_at_one_server_is_heard_and_answered_at_another(http_fleet, model, api):
    tenant = "asked-elsewhere"
    async with api_of(http_fleet.settings, model) as other, Agent.of_tenant(api, tenant, Scope.RUN) as here:
        begun = await here.ask(said("call choose_account {}"), return_immediately=True)
        async with Agent.of_tenant(other, tenant, Scope.RUN, Scope.APPROVE) as elsewhere:
            heard, answered = [], False
            async for event in elsewhere.subscribed(begun.id):
                heard.append(event)
                state = event.status_update.status.state or event.task.status.state
                if state == ASKS and not answered:
                    answered = True
                    await elsewhere.ask(said("checking", task_id=begun.id), return_immediately=True)
            assert states_of(heard)[-1] == COMPLETED
            assert "checking" in answer_heard(heard)


async def test_U12_who_writes_into_redis_puts_no_task_of_another_tenant_into_a_context(api, agent):
    theirs = await agent.ask(said("our secret plan"))
    async with Agent.of_tenant(api, "writes", Scope.RUN) as other:
        first = await other.ask(said("hello", context_id="mine"))
        keys = api.door.client.scan_iter(api.door.settings.keys.a2a_context("*"))
        [key] = [key async for key in keys if await api.door.client.zscore(key, first.id) is not None]
        await api.door.client.zadd(key, {theirs.id: 2**53})
        assert [each.id for each in (await other.listed(context_id="mine")).tasks] == [first.id]
        run = await api.door.orchestrator.get((await other.ask(said("and?", context_id="mine"))).id)
        assert [message.content for message in run.messages if message.role == "user"] == ["hello", "and?"]


async def test_U12_who_may_not_approve_does_not(api, agent):
    asks = await agent.ask(said(PAY))
    tenant = (await api.door.orchestrator.get(asks.id)).terms.tenant
    async with Agent.of_tenant(api, tenant, Scope.RUN) as runner:
        refused = await runner.rpc(
            "SendMessage",
            {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "yes"}], "taskId": asks.id}},
        )
        assert (refused["status"], refused["error"]["data"][0]["reason"]) == (403, "SCOPE_MISSING")
        assert (await runner.get(asks.id)).status.state == ASKS
    async with Agent.of_tenant(api, tenant, Scope.RUN, Scope.APPROVE, tools=("add",)) as other:
        answer = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "yes"}], "taskId": asks.id}}
        assert (await other.rpc("SendMessage", answer))["status"] == 403
    await agent.cancel(asks.id)


async def test_U12_what_is_said_to_a_task_at_work_is_heard_by_its_model_and_stands_in_the_history(agent, stage):
    begun = await agent.ask(said(playing(stage)), return_immediately=True)
    actor = await stage.enters()
    more = said("and mind the gap", task_id=begun.id)
    for _ in range(2):  # sent again, it is not said again
        assert (await agent.ask(more, return_immediately=True)).status.state == WORKING
    actor.returns()
    task = await agent.ask(more)
    assert task.status.state == COMPLETED
    assert "and mind the gap" in text_of(task)
    assert [each.parts[0].text for each in task.history if each.message_id == more.message_id] == ["and mind the gap"]


async def test_U12_a_context_remembers_what_was_said_and_its_tasks_are_listed(api, agent):
    first = await agent.ask(said(ADD, context_id="trip"))
    assert first.context_id == "trip"
    second = await agent.ask(said("what was it?", context_id="trip"))
    assert second.id != first.id
    run = await api.door.orchestrator.get(second.id)
    assert ADD in [message.content for message in run.messages]
    assert len(second.history) == 1
    elsewhere = await agent.ask(said(ADD))
    assert elsewhere.context_id == elsewhere.id
    with pytest.raises(InvalidParamsError, match="another context"):
        await agent.ask(said("hm", task_id=first.id, context_id="other"))
    listed = await agent.listed(context_id="trip")
    assert [each.id for each in listed.tasks] == [second.id, first.id]
    async with Agent.of_tenant(api, "another", Scope.RUN) as other:
        assert not (await other.listed(context_id="trip")).tasks


async def test_U12_tasks_are_listed_page_by_page_without_artifacts_unless_asked_for(agent):
    ids = [(await agent.ask(said(ADD))).id for _ in range(3)]
    asks = await agent.ask(said(PAY))
    page = await agent.listed(page_size=2)
    rest = await agent.listed(page_size=2, page_token=page.next_page_token)
    assert [each.id for each in (*page.tasks, *rest.tasks)] == [asks.id, *reversed(ids)]
    assert (page.total_size, page.page_size, rest.next_page_token) == (4, 2, "")
    assert not any(each.artifacts for each in page.tasks)
    shown = await agent.listed(include_artifacts=True, history_length=0, status=COMPLETED)
    assert [(text_of(each)[-1], list(each.history)) for each in shown.tasks] == [("5", [])] * 3
    assert [each.id for each in (await agent.listed(status=ASKS)).tasks] == [asks.id]
    assert not (await agent.listed(status=FAILED)).tasks
    for wrong in ({"page_size": 101}, {"page_token": "rubbish"}, {"history_length": -1}):
        with pytest.raises(InvalidParamsError):
            await agent.listed(**wrong)
    await agent.cancel(asks.id)


async def test_U12_another_tenants_task_is_not_found(api, agent):
    task = await agent.ask(said(PAY))
    async with Agent.of_tenant(api, "another", Scope.RUN, Scope.APPROVE) as other:
        for doing in (other.get(task.id), other.cancel(task.id), first_of(other.subscribed(task.id))):
            with pytest.raises(TaskNotFoundError):
                await doing
        with pytest.raises(TaskNotFoundError):
            await other.ask(said("yes", task_id=task.id))
        assert task.id not in [each.id for each in (await other.listed()).tasks]
    assert (await agent.cancel(task.id)).status.state == CANCELED


async def test_U12_history_is_as_long_as_wanted(agent):
    task = await agent.ask(said(f'say "a" {ADD} then say "b" {ADD}'))
    assert len(task.history) == 3
    assert list((await agent.get(task.id, history_length=1)).history) == [task.history[-1]]
    assert not (await agent.get(task.id, history_length=0)).history
    assert not (await agent.ask(said(ADD), history_length=0)).history
    with pytest.raises(InvalidParamsError):
        await agent.get(task.id, history_length=-1)


async def test_U12_what_a_tool_returns_beside_text_is_an_artifact(agent, api):
    events = await agent.stream(said('call exported {"size_bytes": 300000, "name": "report.pdf"}'))
    task = await agent.get(events[0].task.id)
    [document, answer] = task.artifacts
    assert (document.name, answer.artifact_id) == ("exported", "answer")
    [part] = document.parts
    assert (part.filename, part.media_type) == ("report.pdf", "application/pdf")
    told = [each.artifact_update.artifact for each in events if each.HasField("artifact_update")]
    assert document in [*events[0].task.artifacts, *told]
    content = part.raw or (await agent.http.get(part.url)).content
    assert len(content) == 300_000


async def test_U12_parts_are_text_data_and_images_and_what_no_model_takes_is_refused(api, agent):
    exact = {"messageId": "exact", "role": "ROLE_USER", "parts": [{"text": "Look:"}, {"data": {"n": 9007199254740993}}]}
    answered = await agent.rpc("SendMessage", {"message": exact})
    run = await api.door.orchestrator.get(answered["result"]["task"]["id"])
    assert run.messages[0].content == 'Look:\n\n{"n":9007199254740993}'
    note = await agent.ask(said(Part(raw=b"buy milk", media_type="text/markdown", filename="todo.md")))
    assert "todo.md:\nbuy milk" in note.history[0].parts[0].text
    for part in (
        Part(raw=b"MZ", media_type="application/octet-stream"),
        Part(raw=b"\xff", media_type="text/plain"),
        Part(url="https://example.com/a.pdf", media_type="application/pdf"),
        Part(raw=b"\x89PNG", media_type="image/png"),  # which this model does not see
    ):
        with pytest.raises(ContentTypeNotSupportedError):
            await agent.ask(said("look", part))
    with pytest.raises(ContentTypeNotSupportedError):
        await agent.ask(said("hello"), accepted_output_modes=["image/png"])


async def test_U12_options_of_a_run_stand_in_the_requests_metadata(api, agent):
    task = (await agent.stream(said("hello"), metadata={"toolfleet": {"tools": ["add"], "max_turns": 3}}))[0].task
    terms = (await api.door.orchestrator.get(task.id)).terms
    assert (terms.tools, terms.max_turns) == (("add",), 3)
    for wrong in ({"tools": ["nobodys"]}, {"max_turns": 0}, {"tenant": "x"}):
        with pytest.raises(InvalidParamsError):
            await agent.stream(said("hello"), metadata={"toolfleet": wrong})


async def test_U12_a_run_that_fails_is_a_task_that_failed_with_its_reason(agent):
    events = await agent.stream(said(f"{ADD} then {ADD}"), metadata={"toolfleet": {"max_turns": 1}})
    ended = status_at_the_end(events)
    assert ended.state == FAILED
    assert "failed" in ended.message.parts[0].text
    assert not (await agent.get(events[0].task.id)).artifacts
