"""What a client cannot have meant, cannot have, or must not do: the protocol's error for each."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx

from tests.http.a2a_agents import COMPLETED, WORKING, Agent, said
from tests.http.fleet_of_doors import WAIT_S, api_of
from toolfleet.orchestrator.doors.http.key_store import Scope

HELLO: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
V1 = {"a2a-version": "1.0"}

DEEP = '{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + "[" * 5000 + "]" * 5000 + "}"


def rpc(method: Any = "GetTask", params: Any = None, id_: Any = 1, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params, **more}


CANNOT_BE_MEANT: list[tuple[bytes, int]] = [
    (b"", -32700),
    (b"{", -32700),
    (b'{"jsonrpc": "2.0", "id": NaN}', -32700),
    (b'"\\ud800"', -32700),
    (b"\xff\xfe", -32700),
    (DEEP.encode(), -32700),
    (b"[]", -32600),
    (json.dumps([rpc()]).encode(), -32600),
    (json.dumps({"id": 1, "method": "GetTask"}).encode(), -32600),
    (json.dumps(rpc(id_=True)).encode(), -32600),
    (json.dumps(rpc(id_=[1])).encode(), -32600),
    (json.dumps(rpc("NoSuchMethod")).encode(), -32601),
    (json.dumps(rpc(None)).encode(), -32601),
    (json.dumps(rpc({"a": 1})).encode(), -32601),
    (json.dumps(rpc(params=[1])).encode(), -32602),
    (json.dumps(rpc(params={"id": 5})).encode(), -32602),
    (json.dumps(rpc(params={})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": "hello"})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "parts": []}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "parts": [{}]}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "parts": "hello"}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "role": "ROLE_AGENT"}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "messageId": ""}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "messageId": "x" * 100_000}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "contextId": "x" * 100_000}})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": HELLO, "tenant": "another"})).encode(), -32602),
    (json.dumps(rpc("SendMessage", {"message": {**HELLO, "taskId": "nobodys"}})).encode(), -32001),
    (json.dumps(rpc("GetTask", {"id": "nobodys"})).encode(), -32001),
    (json.dumps(rpc("GetTask", {"id": "\x1b[31m<b>" * 1000})).encode(), -32001),
    (json.dumps(rpc("CancelTask", {"id": "nobodys"})).encode(), -32001),
    (json.dumps(rpc("SubscribeToTask", {"id": "nobodys"})).encode(), -32001),
    (json.dumps(rpc("CreateTaskPushNotificationConfig", {"taskId": "nobodys", "url": "https://a.b"})).encode(), -32001),
    (json.dumps(rpc("CreateTaskPushNotificationConfig", {"taskId": "nobodys"})).encode(), -32602),
    (json.dumps(rpc("CreateTaskPushNotificationConfig", {"taskId": ["x"], "url": 5})).encode(), -32602),
    (json.dumps(rpc("GetTaskPushNotificationConfig", {"taskId": "nobodys", "id": "c"})).encode(), -32001),
    (json.dumps(rpc("ListTaskPushNotificationConfigs", {"taskId": "\x1b[31m<b>" * 1000})).encode(), -32001),
    (json.dumps(rpc("DeleteTaskPushNotificationConfig", {"taskId": "nobodys", "id": "c"})).encode(), -32001),
]


async def test_U12_what_cannot_be_meant_is_refused_with_the_protocols_error(agent):
    headers = {"authorization": f"Bearer {agent.key}", **V1}
    async with httpx.AsyncClient(base_url=agent.url, headers=headers) as http:
        for body, code in CANNOT_BE_MEANT:
            response = await http.post("/a2a", content=body)
            assert response.status_code == 200, body[:200]
            answered = response.json()
            assert (answered["jsonrpc"], answered["error"]["code"]) == ("2.0", code), body[:200]
            assert isinstance(answered["error"]["message"], str)
            [info, *_] = answered["error"]["data"]
            assert (info["@type"], info["domain"]) == ("type.googleapis.com/google.rpc.ErrorInfo", "a2a-protocol.org")
            assert "Traceback" not in response.text
            assert len(response.text) < 20_000


VERSIONS: list[tuple[str | None, str, int | None]] = [
    ("99.0", "SendMessage", -32009),
    ("99.0", "message/send", -32009),
    ("1.0", "message/send", -32009),
    ("", "SendMessage", -32009),
    (None, "SendMessage", -32009),
    ("0.3", "SendMessage", -32009),
    ("rubbish", "SendMessage", -32009),
    ("1.7", "SendMessage", None),
    ("1", "SendMessage", None),
    (None, "message/send", -32602),  # which is read, and lacks what 0.3 asks for
]


async def test_U12_the_version_header_says_what_is_spoken(agent):
    for version, method, code in VERSIONS:
        answered = await agent.rpc(method, {"message": HELLO}, version=version)
        assert answered.get("error", {}).get("code") == code, (version, method)


async def test_U12_over_plain_http_a_refusal_has_its_status_and_says_why(agent):
    headers = {"authorization": f"Bearer {agent.key}", **V1}
    async with httpx.AsyncClient(base_url=f"{agent.url}/a2a/v1", headers=headers) as http:
        told = {
            "TASK_NOT_FOUND": await http.get("/tasks/nobodys"),
            "INVALID_PARAMS": await http.post("/message:send", json={}),
            "INVALID_REQUEST": await http.post("/message:send", content=b"{"),
            "VERSION_NOT_SUPPORTED": await http.get("/tasks", headers={"a2a-version": "99.0"}),
        }
        for reason, response in told.items():
            error = response.json()["error"]
            assert error["code"] == response.status_code == (404 if reason == "TASK_NOT_FOUND" else 400)
            assert error["details"][0]["reason"] == reason
            assert response.headers["content-type"] == "application/json"
        listed = await http.get("/tasks", params={"pageSize": "1"})
        assert listed.headers["content-type"] == "application/a2a+json"
        assert listed.json() == {"tasks": [], "nextPageToken": "", "pageSize": 1, "totalSize": 0}
        for path, params in (("/tasks", {"pageSize": "many"}), ("/tasks/x", {"historyLength": "-1"})):
            assert (await http.get(path, params=params)).status_code == 400
        assert (await http.get("/no/such/path")).json()["error"]["status"] == "NOT_FOUND"


async def test_U12_who_has_no_key_or_one_for_less_is_told_so_over_http_and_in_the_protocol(api, agent):
    async with httpx.AsyncClient(base_url=agent.url, headers=V1) as http:
        nobody = await http.post("/a2a", json=rpc("SendMessage", {"message": HELLO}))
        assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, -32600)
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert (await http.get("/a2a/v1/tasks")).json()["error"]["status"] == "UNAUTHENTICATED"
        key, made = await api.door.keyring.add(tenant="looks", scopes=(Scope.READ,))
        looker = {"authorization": f"Bearer {key}"}
        for method, params in (
            ("SendMessage", {"message": HELLO}),
            ("SendStreamingMessage", {"message": HELLO}),
            ("GetTask", {"id": "x"}),
            ("ListTasks", {}),
            ("SubscribeToTask", {"id": "x"}),
            ("CancelTask", {"id": "x"}),
            ("CreateTaskPushNotificationConfig", {"taskId": "x", "url": "https://example.com/hook"}),
            ("GetTaskPushNotificationConfig", {"taskId": "x", "id": "c"}),
            ("ListTaskPushNotificationConfigs", {"taskId": "x"}),
            ("DeleteTaskPushNotificationConfig", {"taskId": "x", "id": "c"}),
        ):
            refused = await http.post("/a2a", json=rpc(method, params), headers=looker)
            assert (refused.status_code, refused.json()["error"]["data"][0]["reason"]) == (403, "SCOPE_MISSING")
        await api.door.keyring.revoke(made.key_id)


async def test_U12_a_hundred_megabytes_are_refused_before_they_are_read(agent):
    async def hundred_mb():
        yield b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"x": "'
        for _ in range(100):
            yield b"x" * 1_000_000

    headers = {"authorization": f"Bearer {agent.key}", **V1}
    async with httpx.AsyncClient(base_url=agent.url, headers=headers, timeout=WAIT_S) as http:
        refused = await http.post("/a2a", content=b"x" * (5 * 1024 * 1024))
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, -32600)
        with suppress(httpx.WriteError, httpx.ReadError):  # the rest is not taken
            assert (await http.post("/a2a", content=hundred_mb())).status_code == 413
    assert (await agent.rpc("GetTask", {"id": "x"}))["error"]["code"] == -32001


async def test_U12_a_server_without_a_model_begins_no_task_and_shows_those_of_others(http_fleet, agent):
    begun = await agent.ask(said("hello"))
    async with api_of(http_fleet.settings) as without, Agent.at(without.url, agent.key) as same:
        refused = await same.rpc("SendMessage", {"message": HELLO})
        assert refused["error"]["code"] == -32004
        assert (await same.get(begun.id)).status.state == COMPLETED


async def test_U12_who_holds_all_its_listeners_places_gets_no_stream_more(http_fleet, model, stage):
    settings = http_fleet.settings.model_copy(update={"api_listeners": 1})
    async with api_of(settings, model) as api, Agent.of_tenant(api, "listens", Scope.RUN) as agent:
        begun = await agent.ask(said(f'call play {{"stage": "{stage.path}"}}'), return_immediately=True)
        actor = await stage.enters()
        listening = agent.subscribed(begun.id)
        assert (await anext(listening)).task.status.state == WORKING
        refused = await agent.rpc("SubscribeToTask", {"id": begun.id})
        assert (refused["status"], refused["error"]["data"][0]["reason"]) == (429, "QUOTA_EXCEEDED")
        actor.returns()
        assert [each async for each in listening][-1].status_update.status.state == COMPLETED
