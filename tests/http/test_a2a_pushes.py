"""Push notifications of A2A: the official client asks for them, a real receiver is told, whoever is killed or down."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis.asyncio
from a2a.compat.v0_3 import types as old
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    StreamResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import ParseDict
from stages import Stage

from tests.http.a2a_agents import ASKS, COMPLETED, Agent, said, text_of
from tests.http.fleet_of_doors import Api, api_of
from tests.http.test_a2a_tasks import ADD, PAY, playing
from tests.webhooks.receiver import WAIT_S, Receiver, Request, receiving
from tests.webhooks.test_delivery import lone, nothing_owed, until
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.a2a import telling
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.models import REHEARSAL_MODEL, RehearsalServer
from toolfleet.orchestrator.webhooks import delivering, push_records
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.settings import Settings
from toolfleet.testing import Point, kill_at
from toolfleet.wire import Seal

SOON = "0.05 0.05 0.1 0.1 0.2 0.2 0.4 0.4 1 1 2 2"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(telling, "LOOK_EVERY_S", 0.05)


@pytest.fixture
def settings(http_fleet) -> Settings:
    return http_fleet.settings.model_copy(update={"webhook_networks": "127.0.0.1/32", "webhook_retry_s": SOON})


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
async def api(settings: Settings, model) -> AsyncIterator[Api]:
    async with api_of(settings, model) as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@dataclass(frozen=True)
class Pushed:
    """The official client, and the verbs of configurations by it."""

    agent: Agent

    async def create(self, task_id: str, url: str, **more: Any) -> TaskPushNotificationConfig:
        config = TaskPushNotificationConfig(task_id=task_id, url=url, **more)
        return await self.agent.client.create_task_push_notification_config(config)

    async def get(self, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        request = GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
        return await self.agent.client.get_task_push_notification_config(request)

    async def listed(self, task_id: str) -> list[TaskPushNotificationConfig]:
        request = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        return list((await self.agent.client.list_task_push_notification_configs(request)).configs)

    async def delete(self, task_id: str, config_id: str) -> None:
        request = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
        await self.agent.client.delete_task_push_notification_config(request)


def told_in_1_0(request: Request):
    """The task that a push tells of, read by the protocol's own record, of which nothing is left over."""
    response = ParseDict(request.said, StreamResponse())
    assert response.WhichOneof("payload") == "task"
    return response.task


BEARER = AuthenticationInfo(scheme="Bearer", credentials="s3cret-of-the-receiver")


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")])
async def test_U12_the_end_of_a_task_is_pushed_in_either_binding_and_by_the_older_protocol(
    api, stage: Stage, receiver: Receiver, client, settings, binding, version
):
    tenant = f"tenant-{secrets.token_hex(4)}"
    async with Agent.of_tenant(api, tenant, Scope.RUN, binding=binding, version=version) as agent:
        assert agent.client._card.capabilities.push_notifications
        pushed = Pushed(agent)
        begun = (await anext(agent.streaming(said(f"{playing(stage)} then {ADD}")))).task
        actor = await stage.enters()
        made = await pushed.create(begun.id, receiver.url, id="mine", token="t0ken", authentication=BEARER)
        assert (made.id, made.task_id, made.url, made.token) == ("mine", begun.id, receiver.url, "t0ken")
        shown = await pushed.get(begun.id, "mine")
        assert (shown.url, shown.token, shown.authentication.credentials) == (receiver.url, "", "")
        assert shown.authentication.scheme == "Bearer"
        await pushed.create(begun.id, receiver.url)
        assert [each.id for each in await pushed.listed(begun.id)] == sorted(["mine", begun.id])
        for _ in range(2):  # the second time is no error
            await pushed.delete(begun.id, begun.id)
        assert [each.id for each in await pushed.listed(begun.id)] == ["mine"]
        actor.returns()
        [request] = await receiver.wait_for(1)
        ended = await agent.get(begun.id)
        await until(lambda: nothing_owed(client, settings))
    assert request.headers["x-a2a-notification-token"] == "t0ken"
    assert request.headers["authorization"] == "Bearer s3cret-of-the-receiver"
    if version == "1.0":
        assert request.headers["content-type"] == "application/a2a+json"
        task = told_in_1_0(request)
        assert (task.id, task.context_id, task.status) == (ended.id, ended.context_id, ended.status)
        assert text_of(task) == text_of(ended)
    else:
        assert request.headers["content-type"] == "application/json"
        older = old.Task.model_validate_json(request.body)
        assert (older.id, older.status.state, older.kind) == (ended.id, old.TaskState.completed, "task")
        assert older.artifacts[0].parts[0].root.text == text_of(ended)
    assert len(receiver.got) == 1


async def test_U12_a_message_brings_its_configuration_and_who_must_answer_is_told_before_the_end(
    agent: Agent, receiver: Receiver
):
    wanted = {"taskPushNotificationConfig": {"url": receiver.url}}
    [*_, asks] = await agent.stream(said(PAY), **wanted)
    task_id = asks.status_update.task_id
    [first] = await receiver.wait_for(1)
    asked = told_in_1_0(first)
    assert (asked.id, asked.status.state) == (task_id, ASKS)
    assert asked.status.message.parts[1].data.struct_value["approvals"][0]["tool"] == "pay"
    await agent.ask(said("yes", task_id=task_id))
    _, second = await receiver.wait_for(2)
    assert (told_in_1_0(second).id, told_in_1_0(second).status.state) == (task_id, COMPLETED)


async def test_U12_a_question_of_a_tool_is_pushed(agent: Agent, receiver: Receiver):
    wanted = {"taskPushNotificationConfig": {"url": receiver.url}, "returnImmediately": True}
    task = await agent.ask(said("call choose_account {}"), **wanted)
    [first] = await receiver.wait_for(1)
    asked = told_in_1_0(first)
    assert (asked.id, asked.status.state) == (task.id, ASKS)
    await agent.cancel(task.id)
    await receiver.wait_for(2)


async def test_U12_a_configuration_that_comes_after_the_end_is_told_of_it_at_once(agent: Agent, receiver: Receiver):
    task = await agent.ask(said(ADD))
    await Pushed(agent).create(task.id, receiver.url, id="late")
    [request] = await receiver.wait_for(1)
    assert told_in_1_0(request).status == task.status


async def test_U12_the_same_message_again_is_told_of_once_more_at_most_and_keeps_one_configuration(
    agent: Agent, receiver: Receiver, client, settings
):
    message, wanted = said(ADD), {"taskPushNotificationConfig": {"url": receiver.url}}
    tasks = [await agent.ask(message, **wanted) for _ in range(3)]
    await receiver.wait_for(1)
    await until(lambda: nothing_owed(client, settings))
    assert len(await Pushed(agent).listed(tasks[0].id)) == 1
    assert 1 <= len(receiver.got) <= 3


# --- nothing is lost --------------------------------------------------------------------------------------------------


async def test_U12_a_push_survives_an_orchestrator_killed_between_the_end_of_its_task_and_the_attempt(
    settings: Settings, receiver: Receiver, client
):
    async with RehearsalServer() as model:
        async with Orchestrator(settings=settings) as waits:
            task_id = await waits.submit("say hello", model=REHEARSAL_MODEL)
        async with api_of(settings) as api, Agent.at(api.url, api.local_key.made()) as agent:
            await Pushed(agent).create(task_id, receiver.url, token="t")
        async with lone(settings, model, kill_at(Point.REPLY_STORED)) as process:  # takes the task over
            assert await asyncio.wait_for(process.wait(), WAIT_S) == -signal.SIGKILL
        assert receiver.got == []
        assert await client.zscore(settings.keys.pushes_due(), task_id) is not None
        async with api_of(settings):
            [request] = await receiver.wait_for(1)
            await until(lambda: nothing_owed(client, settings))
    task = told_in_1_0(request)
    assert (task.id, task.status.state) == (task_id, COMPLETED)
    assert request.headers["x-a2a-notification-token"] == "t"
    assert not await client.exists(settings.keys.pushes_due())


async def test_U12_a_receiver_that_is_down_is_told_once_it_is_back_and_by_whoever_is_there(
    settings: Settings, model, client
):
    async with receiving() as receiver:
        pass
    async with api_of(settings, model) as api, Agent.of_tenant(api, "down", Scope.RUN) as agent:
        task = await agent.ask(said(ADD), taskPushNotificationConfig={"url": receiver.url})
        # Down: nobody listens.
        await until(lambda: has_failed(client, settings, "down"))
    async with Orchestrator(settings=settings), receiving(receiver):  # which knows nothing of the protocol
        [request, *_] = await receiver.wait_for(1)
        await until(lambda: nothing_owed(client, settings))
    assert told_in_1_0(request).id == task.id


async def has_failed(client: redis.asyncio.Redis, settings: Settings, tenant: str) -> bool:
    outbox = Outbox(client, settings, Seal(settings))
    config = push_records.PushConfig(config_id="", run_id="", tenant=tenant, url="", protocol="1.0")
    return any(each.error for each in await outbox.attempts(config.endpoint_id))


async def test_U12_what_is_never_taken_is_given_up_listed_and_sent_again_when_somebody_says_so(
    settings: Settings, model, receiver: Receiver, client
):
    tenant, once = f"tenant-{secrets.token_hex(4)}", settings.model_copy(update={"webhook_retry_s": "0.01"})
    receiver.status = 500
    async with api_of(once, model) as api, Agent.of_tenant(api, tenant, Scope.RUN, Scope.PAYLOADS) as agent:
        await agent.ask(said(ADD), taskPushNotificationConfig={"url": receiver.url})

        async def dead() -> list[dict[str, Any]]:
            return (await agent.http.get(f"{agent.url}/v1/webhooks/dead")).json()["dead"]

        [given_up] = await until(dead)
        assert (given_up["event"], given_up["attempts"]) == ("a2a.task", 2)
        receiver.status = 204
        path = f"/v1/webhooks/dead/{given_up['delivery_id']}/replay"
        assert (await agent.http.post(f"{agent.url}{path}", json={})).is_success
        await receiver.wait_for(3)
        await until(lambda: nothing_owed(client, settings))
        assert await dead() == []


async def test_U12_a_receiver_that_is_gone_for_good_is_told_nothing_more(agent: Agent, receiver: Receiver):
    receiver.status = 410
    task = await agent.ask(said(PAY), taskPushNotificationConfig={"url": receiver.url}, returnImmediately=True)
    await receiver.wait_for(1)
    pushed = Pushed(agent)

    async def dropped() -> bool:
        return not await pushed.listed(task.id)

    await until(dropped)
    await agent.cancel(task.id)


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_U12_configurations_of_another_tenants_task_are_not_found(api: Api, agent: Agent, receiver: Receiver):
    task = await agent.ask(said(ADD))
    await Pushed(agent).create(task.id, receiver.url, id="c")
    async with Agent.of_tenant(api, "another", Scope.RUN) as other:
        theirs = Pushed(other)
        for asking in (
            theirs.create(task.id, receiver.url),
            theirs.get(task.id, "c"),
            theirs.listed(task.id),
            theirs.delete(task.id, "c"),
            theirs.create("nobodys", receiver.url),
        ):
            with pytest.raises(TaskNotFoundError):
                await asking
    with pytest.raises(TaskNotFoundError):
        await Pushed(agent).get(task.id, "other")
    assert len(await Pushed(agent).listed(task.id)) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"url": "https://10.0.0.1/hook"},
        {"url": "https://169.254.169.254/latest"},
        {"url": "http://[::ffff:10.0.0.1]/"},
        {"url": "http://0xa.1/"},
        {"url": "file:///etc/passwd"},
        {"url": "https://user:word@example.com/"},
        {"url": "https://example.com/#part"},
        {"url": "https://example.com/" + "x" * 100_000},
        {"url": ""},
        {"token": "two\r\nlines: 1"},
        {"token": "ü"},
        {"token": "x" * 100_000},
        {"id": "x" * 100_000},
        {"authentication": {"scheme": "Bearer x\r\nHost: evil", "credentials": "c"}},
        {"authentication": {"scheme": "Bearer", "credentials": "c\nX: 1"}},
        {"authentication": {"credentials": "c"}},
    ],
)
async def test_U12_where_nothing_may_be_sent_nothing_begins(agent: Agent, receiver: Receiver, config: dict[str, Any]):
    wanted = {"url": receiver.url, **config}
    begun = await agent.ask(said(ADD))
    for method, params in (
        ("CreateTaskPushNotificationConfig", {"taskId": begun.id, **wanted}),
        ("SendMessage", {"message": HELLO, "configuration": {"taskPushNotificationConfig": wanted}}),
    ):
        answered = await agent.rpc(method, params)
        assert answered["error"]["code"] == -32602, method
        assert len(json.dumps(answered)) < 20_000
    assert (await agent.listed()).total_size == 1
    assert receiver.got == []


HELLO: dict[str, Any] = {"messageId": "m-push", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


async def test_U12_a_task_has_ten_configurations_at_most_and_a_tenant_so_many_tasks_with_some(
    agent: Agent, stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    pushed = Pushed(agent)
    first, second = [await agent.ask(said(playing(stage)), return_immediately=True) for _ in range(2)]
    for number in range(push_records.CONFIGS_MAX):
        await pushed.create(first.id, receiver.url, id=f"c{number}")
    with pytest.raises(InvalidParamsError, match="10 push notification"):
        await pushed.create(first.id, receiver.url, id="one too many")
    await pushed.create(first.id, receiver.url, id="c3", token="another")  # in the place of the one before
    monkeypatch.setattr("toolfleet.orchestrator.webhooks.pushes.TASKS_MAX", 1)
    with pytest.raises(InvalidParamsError, match="go on already"):
        await pushed.create(second.id, receiver.url)
    await agent.cancel(first.id)
    await receiver.wait_for(push_records.CONFIGS_MAX)
    await pushed.create(second.id, receiver.url)  # one that has ended takes no room
    await agent.cancel(second.id)
    await receiver.wait_for(push_records.CONFIGS_MAX + 1)


# --- what is kept, and what Redis shows -------------------------------------------------------------------------------


async def test_U12_who_has_redis_reads_no_secret_and_has_nothing_pushed_elsewhere(
    agent: Agent, stage: Stage, receiver: Receiver, client, settings
):
    pushed = Pushed(agent)
    one, other = [await agent.ask(said(playing(stage)), return_immediately=True) for _ in range(2)]
    long = "long " + "secret" * 300
    await pushed.create(one.id, receiver.url, id="c", token="t0ken-in-words", authentication=bearer(long))
    kept = await client.hgetall(settings.keys.pushes(one.id))
    assert b"t0ken-in-words" not in kept[b"c"]
    assert b"secretsecret" not in kept[b"c"]
    # Put beside another task, as another one of the same, or altered: nobody believes it.
    await client.hset(settings.keys.pushes(other.id), "c", kept[b"c"])
    await client.hset(settings.keys.pushes(one.id), "d", kept[b"c"])
    await client.hset(settings.keys.pushes(one.id), "e", kept[b"c"].replace(b"127.0.0.1", b"127.0.0.2"))
    await client.zadd(settings.keys.pushes_due(), {other.id: 1, "nobodys": 1})
    assert [each.id for each in await pushed.listed(one.id)] == ["c"]
    assert await pushed.listed(other.id) == []
    await agent.cancel(one.id)
    [request] = await receiver.wait_for(1)
    assert request.headers["authorization"] == f"Bearer {long}"
    await agent.cancel(other.id)
    await until(lambda: nothing_owed(client, settings))
    assert len(receiver.got) == 1


def bearer(credentials: str) -> AuthenticationInfo:
    return AuthenticationInfo(scheme="Bearer", credentials=credentials)


async def test_U12_configurations_are_kept_for_as_long_as_their_task_and_go_with_it(
    agent: Agent, stage: Stage, receiver: Receiver, client, settings, api: Api
):
    task = await agent.ask(said(playing(stage)), return_immediately=True)
    pushes, head = settings.keys.pushes(task.id), settings.keys.head(task.id)
    await Pushed(agent).create(task.id, receiver.url)
    assert abs(await client.pttl(pushes) - await client.pttl(head)) < 60_000
    (await stage.enters()).returns()
    await receiver.wait_for(1)
    assert abs(await client.pttl(pushes) - await client.pttl(head)) < 60_000
    assert await client.pttl(pushes) < settings.keep_unfinished_s * 1000
    await api.door.orchestrator.delete(task.id)
    assert not await client.exists(pushes)
