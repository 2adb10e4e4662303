"""What people do with runs over HTTP, and that the history says who did it."""

import asyncio
import json

import pytest

from tests.http.fleet_of_doors import WAIT_S
from tests.page.visitors import SAME, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope

ADD = 'call add {"a": 2, "b": 3}'
SAID = '{"value": {"z": 9007199254740993, "": 1, "a": 1.10, "b": 123456789012345678901234567890}}'


@pytest.fixture
async def ada(api):
    """Headers of Ada's key, and what histories call her."""
    key, stored = await api.door.keyring.add("desk", subject="ada", scopes=(Scope.RUN, Scope.APPROVE))
    return {"authorization": f"Bearer {key}"}, f"desk {stored.key_id} (ada)"


async def events_of(api, run_id, kind):
    return [data for _, each, data in await api.events(run_id) if each == kind]


async def key_with(api, **allowed):
    key, _ = await api.door.keyring.add(**allowed)
    return {"authorization": f"Bearer {key}"}


async def waiting_call(api):
    run_id = await api.begin('call pay {"amount": 5}')
    seen = await api.events(run_id, most=3)
    return run_id, seen[-1][2]["awaiting_approval"][0]


@pytest.mark.parametrize(
    "decided",
    [
        {"granted": True},
        {"granted": True, "arguments": {"amount": 4}},
        {"granted": False, "reason": "too much"},
    ],
    ids=["approve", "edit", "deny"],
)
async def test_W16_who_decides_about_a_call_stands_in_the_history(api, ada, decided):
    headers, name = ada
    run_id, call_id = await waiting_call(api)
    url = f"/v1/runs/{run_id}/approvals"
    looker, _ = await api.door.keyring.add(scopes=(Scope.RUN,))
    refused = await api.client.post(
        url, json={"call_id": call_id, **decided}, headers={"authorization": f"Bearer {looker}"}
    )
    assert refused.status_code == 403
    assert (await api.client.post(url, json={"call_id": call_id, **decided}, headers=headers)).status_code == 200
    await api.ended(run_id)
    [given] = await events_of(api, run_id, "approval_given")
    assert (given["approval"]["by"], given["approval"]["granted"]) == (name, decided["granted"])
    assert given["approval"]["reason"] == decided.get("reason", "")


async def test_W16_who_cancels_and_who_lets_a_run_go_on_stand_in_the_history(api, ada):
    headers, name = ada
    run_id = await api.begin('call wait {"seconds": 60}')
    await api.client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"}, headers=headers)
    [stopped] = await events_of(api, run_id, "run_stopped")
    assert (stopped["by"], stopped["reason"]) == (name, "enough")
    again = await api.client.post(f"/v1/runs/{run_id}/messages", json={"question": ADD}, headers=headers)
    assert again.status_code == 202
    assert (await api.ended(run_id))["answer"].endswith("add: 5")
    [resumed] = await events_of(api, run_id, "run_resumed")
    assert resumed["by"] == name


async def test_W16_who_begins_a_run_and_who_cancels_one_call_of_it_stand_in_the_history(api, ada):
    headers, name = ada
    asked = {
        "question": 'call wait {"seconds": 60} and call elsewhere {"job": "j"}',
        "slow": "handle",
        "patience_s": 0.1,
    }
    run_id = (await api.client.post("/v1/runs", json=asked, headers=headers)).json()["run_id"]
    async with asyncio.timeout(WAIT_S):
        while not (handle := (await api.client.get(f"/v1/runs/{run_id}/calls/{run_id}.1.1")).json().get("handle")):
            await asyncio.sleep(0.05)
    assert (await api.client.post(f"/v1/handles/{handle}/cancel", headers=headers)).status_code == 200
    async with visitor(api, headers["authorization"].removeprefix("Bearer ")) as user:
        await user.post(f"/calls/{run_id}.1.0/cancel", headers=SAME)
        shown = (await user.get(f"/runs/{run_id}")).text
    await api.ended(run_id)
    asked_for = await events_of(api, run_id, "call_cancel_requested")
    assert [(each["call_id"], each["by"]) for each in asked_for] == [
        (f"{run_id}.1.1", name),
        (f"{run_id}.1.0", name),
    ]
    [started] = await events_of(api, run_id, "run_started")
    assert started["by"] == name
    assert f"cancelled {run_id}.1.0" in shown
    assert "began the run" in shown


async def test_W16_who_begins_and_who_cancels_a_response_of_openais_api_stand_in_the_history(api, ada):
    headers, name = ada
    asked = {"model": api.door.model, "input": 'call wait {"seconds": 60}', "background": True}
    response = (await api.client.post("/v1/responses", json=asked, headers=headers)).json()["id"]
    assert (await api.client.post(f"/v1/responses/{response}/cancel", headers=headers)).status_code == 200
    run_id = response.removeprefix("resp_")
    [started], [stopped] = [await events_of(api, run_id, kind) for kind in ("run_started", "run_stopped")]
    assert (started["by"], stopped["by"]) == (name, name)


async def test_W16_a_run_is_forked_from_what_it_had_come_to_after_a_turn(api, ada):
    headers, name = ada
    run_id = await api.begin(f"{ADD} then {ADD}", tools=["add", "echo"])
    whole = await api.ended(run_id)
    body = {"turn": 1, "question": 'call echo {"value": "another way"}'}
    same = {"idempotency-key": run_id}
    forked = await api.client.post(f"/v1/runs/{run_id}/fork", json=body, headers=headers | same)
    assert forked.status_code == 202, forked.text
    again = await api.client.post(f"/v1/runs/{run_id}/fork", json=body, headers=headers | same)
    assert again.json() == forked.json()
    new = await api.ended(forked.json()["run_id"])
    assert new["messages"][:3] == whole["messages"][:3]
    assert new["messages"][3]["content"] == body["question"]
    assert new["answer"].endswith("another way")
    [started] = await events_of(api, new["run_id"], "run_started")
    assert started["asked_as"] == {"forked_from": run_id, "turn": 1, "by": name}
    assert started["terms"]["tools"] == ["add", "echo"]
    assert started["terms"]["subject"] == "ada"
    assert (await api.client.get(f"/v1/runs/{run_id}")).json() == whole


async def test_a_turn_that_was_not_taken_or_is_anothers_is_not_forked(api, ada):
    run_id = await api.begin(ADD)
    await api.ended(run_id)
    url = f"/v1/runs/{run_id}/fork"
    assert (await api.client.post(url, json={"turn": 3})).status_code == 409
    assert (await api.client.post(url, json={"turn": -1})).status_code == 422
    other, _ = await api.door.keyring.add(tenant="other")
    assert (
        await api.client.post(url, json={"turn": 1}, headers={"authorization": f"Bearer {other}"})
    ).status_code == 404
    looker, _ = await api.door.keyring.add(scopes=(Scope.READ,))
    assert (
        await api.client.post(url, json={"turn": 1}, headers={"authorization": f"Bearer {looker}"})
    ).status_code == 403
    narrow, _ = await api.door.keyring.add(tools=("echo",))
    forked = await api.client.post(url, json={"turn": 0}, headers={"authorization": f"Bearer {narrow}"})
    assert forked.status_code == 202
    run = (await api.client.get(f"/v1/runs/{forked.json()['run_id']}")).json()
    assert run["terms"]["tools"] == ["echo"]


async def test_W12_edited_arguments_reach_the_tool_as_they_were_written(api):
    run_id = await api.begin('call confirmed {"value": 1}')
    seen = await api.events(run_id, most=3)
    decided = {"call_id": seen[-1][2]["awaiting_approval"][0], "granted": True, "arguments": SAID}
    answer = await api.client.post(f"/v1/runs/{run_id}/approvals", json=decided)
    assert answer.status_code == 200, answer.text
    run = await api.ended(run_id)
    [given] = await events_of(api, run_id, "approval_given")
    assert given["approval"]["arguments"] == SAID
    returned = json.loads(run["calls"][0]["result"]["content"])
    assert list(returned) == ["z", "", "a", "b"]
    assert (returned["z"], returned["b"]) == (9007199254740993, 123456789012345678901234567890)
    shown = (await api.client.get(f"/v1/runs/{run_id}/calls/{run_id}.1.0")).json()
    assert shown["arguments"] == SAID


@pytest.mark.parametrize("text", ["[1]", "{", "7", '{"value": 1} x', '{"value": "\\ud800"'])
async def test_edited_arguments_that_are_no_object_are_refused(api, text):
    run_id, call_id = await waiting_call(api)
    decided = {"call_id": call_id, "granted": True, "arguments": text}
    assert (await api.client.post(f"/v1/runs/{run_id}/approvals", json=decided)).status_code == 422
    await api.client.post(f"/v1/runs/{run_id}/cancel")
