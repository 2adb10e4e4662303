"""The calls of a run over HTTP: many of them page by page, one of them whole, and why one waits."""

import asyncio
import json
import time

import pytest
from stages import stage_of_its_own

from tests.http.fleet_of_doors import WAIT_S
from tests.run import machine
from toolfleet.calls import Attempt, Failed, FailureKind, Returned
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.run.events import CallsBack, CallsSent, ModelReplied, RunStopped
from toolfleet.orchestrator.store.journal import Journal

CALLS = 2000
MAX_BYTES = 5 * 1024 * 1024


def came_back(n):
    """Each tenth call has failed, and call 777 has taken longest."""
    attempt = Attempt(worker="w", number=1, began_unix_s=1000.0, ended_unix_s=1009.0 if n == 777 else 1000.0 + n / 1e6)
    if n % 10 == 9:
        return Failed(kind=FailureKind.ERROR, message=f"No such file: <b>{n}</b>", attempt=attempt)
    return Returned(content="x" * 5000, attempt=attempt)


@pytest.fixture
async def many(api):
    """A stored run of 2,000 calls that are back."""
    run_id = f"many{time.monotonic_ns():x}"
    journal = Journal(
        api.door.looking.store,
        await api.door.looking.store.begin(machine.STARTED.model_copy(update={"run_id": run_id})),
        "",
    )
    tools = ["odd" if n % 2 else "even" for n in range(CALLS)]
    requests = tuple(RequestedCall(id=f"c{n}", name=tool, arguments="{}") for n, tool in enumerate(tools))
    await journal.append(ModelReplied(message=AssistantMessage(tool_calls=requests)))
    ids = [f"{run_id}.1.{n}" for n in range(CALLS)]
    await journal.append(CallsSent(deadlines_unix_s=dict.fromkeys(ids, time.time() + 600)))
    results = {call_id: came_back(n) for n, call_id in enumerate(ids)}
    messages = tuple(ToolMessage(tool_call_id=each.id, name=each.name, content="x") for each in requests)
    await journal.append(CallsBack(results=results, messages=messages))
    yield run_id, ids
    await api.client.delete(f"/v1/runs/{run_id}")


async def pages(api, run_id, **asked):
    told, after = [], ""
    while after is not None:
        answer = await api.client.get(f"/v1/runs/{run_id}/calls", params={**asked, "after": after})
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < MAX_BYTES / 10
        told.append(answer.json())
        after = told[-1]["after"]
    return told


async def test_W3_the_calls_of_a_run_come_page_by_page_with_the_first_failure_and_the_slowest(api, many):
    run_id, ids = many
    told = await pages(api, run_id, limit=500)
    assert [call["call_id"] for page in told for call in page["calls"]] == ids
    assert len(told) == 4
    for page in told:
        assert (page["total"], page["failed"], page["first_failure"]) == (CALLS, CALLS // 10, ids[9])
        assert page["slowest"] == {"call_id": ids[777], "took_s": 9.0}


async def test_W3_calls_are_found_by_tool_state_and_a_part_of_their_error(api, many):
    run_id, ids = many

    async def found(**asked):
        return [call["call_id"] for page in await pages(api, run_id, **asked) for call in page["calls"]]

    assert await found(tool="even") == ids[::2]
    assert await found(state="failed", limit=30) == ids[9::10]
    assert await found(error="FILE: <b>199") == [ids[199], *ids[1999:]]
    assert await found(error="file", tool="even") == []
    assert await found(state=["succeeded"], tool=["odd", "none"]) == [ids[n] for n in range(1, CALLS, 2) if n % 10 != 9]


async def test_a_page_behind_no_call_and_a_state_that_is_none_are_refused(api, many):
    run_id, _ = many
    for wrong, status in (({"after": "x"}, 400), ({"state": "weird"}, 422), ({"limit": 0}, 422), ({"offset": 1}, 422)):
        assert (await api.client.get(f"/v1/runs/{run_id}/calls", params=wrong)).status_code == status
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,))
    asked = {"params": {"error": "file"}, "headers": {"authorization": f"Bearer {key}"}}
    assert (await api.client.get(f"/v1/runs/{run_id}/calls", **asked)).status_code == 403


async def until(api, path, **wanted):
    """The document once these of its fields are so."""
    async with asyncio.timeout(WAIT_S):
        while True:
            told = (await api.client.get(path)).json()
            if {name: told.get(name) for name in wanted} == wanted:
                return told
            await asyncio.sleep(0.05)


async def test_W4_of_a_silent_call_its_worker_is_told_and_when_that_has_last_shown_life(api):
    async with stage_of_its_own() as stage:
        run_id = await api.begin(f"call play {json.dumps({'stage': stage.path})}")
        actor = await stage.enters()
        shown = f"/v1/runs/{run_id}/calls/{actor.call_id}"
        async with asyncio.timeout(WAIT_S):
            while (told := await until(api, shown, state="running"))["held_by"]["lease_left_s"] is None:
                await asyncio.sleep(0.05)  # a machine that is busy is late with a heartbeat
        [worker] = (await api.client.get("/v1/workers")).json()["workers"]
        held = told["held_by"]
        assert held["worker"] == worker["worker"]
        assert 0 <= held["sign_of_life_s"] <= api.door.settings.lease_s
        assert 0 < held["lease_left_s"] <= api.door.settings.lease_s
        assert told["attempt"] == 1
        assert 0 <= held["since_s"] <= told["age_s"] + 1
        actor.returns()
    assert (await api.ended(run_id))["state"] == "done"


async def test_W12_arguments_are_told_exactly(api):
    said = '{"value": {"z": 9007199254740993, "": 1, "a": 1.0, "b": 1e400}}'
    run_id = f"exact{time.monotonic_ns():x}"
    store = api.door.looking.store
    journal = Journal(store, await store.begin(machine.STARTED.model_copy(update={"run_id": run_id})), "")
    request = RequestedCall(id="c", name="echo", arguments=said)
    await journal.append(ModelReplied(message=AssistantMessage(tool_calls=(request,))))
    assert (await api.client.get(f"/v1/runs/{run_id}/calls/{run_id}.1.0")).json()["arguments"] == said
    await api.client.delete(f"/v1/runs/{run_id}")


async def test_a_call_whose_run_ended_before_it_was_noted_that_it_was_sent_has_its_age_all_the_same(api):
    run_id = f"ended{time.monotonic_ns():x}"
    store = api.door.looking.store
    journal = Journal(store, await store.begin(machine.STARTED.model_copy(update={"run_id": run_id})), "")
    request = RequestedCall(id="c", name="echo", arguments="{}")
    await journal.append(ModelReplied(message=AssistantMessage(tool_calls=(request,))))
    began = time.time() - 100
    attempt = Attempt(worker="w", number=1, began_unix_s=began, ended_unix_s=began + 1)
    results = {f"{run_id}.1.0": Returned(content="x", attempt=attempt)}
    await journal.append(RunStopped(state="cancelled", reason="unwanted", results=results))
    [told] = (await api.client.get(f"/v1/runs/{run_id}/calls")).json()["calls"]
    assert (told["state"], told["took_s"]) == ("succeeded", 1.0)
    assert 100 <= told["age_s"] < 100 + WAIT_S
    await api.client.delete(f"/v1/runs/{run_id}")


async def test_F10_a_waiting_call_tells_why_it_waits_and_how_many_are_ahead(api):
    key, _ = await api.door.keyring.add(tenant="acme")
    acme = {"authorization": f"Bearer {key}"}
    async with stage_of_its_own() as stage:
        asked = {"arguments": {"stage": stage.path}, "patience_s": 0}
        handles = [
            (await api.client.post("/v1/tools/one_by_one/call", json=asked, headers=acme)).json()["handle"]
            for _ in range(3)
        ]
        actors = [await stage.enters()]
        async with asyncio.timeout(WAIT_S):
            while True:
                told = [(await api.client.get(f"/v1/handles/{each}", headers=acme)).json() for each in handles]
                waiting = [each["waits_for"] for each in told if each["waits_for"]]
                if len(waiting) == 2 and all(each["kind"] == "concurrency" for each in waiting):
                    break
                await asyncio.sleep(0.05)
        assert [each["reason"] for each in waiting] == ["concurrency tenant=acme 1/1"] * 2
        assert [each["ahead"] for each in waiting] == [0, 1]
        looker, _ = await api.door.keyring.add(tenant="acme", scopes=(Scope.READ,))
        hidden = await api.client.get(f"/v1/handles/{handles[2]}", headers={"authorization": f"Bearer {looker}"})
        assert hidden.json()["waits_for"] == {**waiting[1], "reason": "hidden (27 bytes)"}
        actors[0].returns()
        for _ in range(2):
            actors.append(await stage.enters())
            actors[-1].returns()


async def test_F10_a_call_that_waits_for_a_rate_tells_in_how_long_it_goes(api):
    asked = {"arguments": {}, "patience_s": 0}
    handles = []
    for _ in range(3):
        answer = (await api.client.post("/v1/tools/now_and_then/call", json=asked)).json()
        handles.append(answer["handle"])
    async with asyncio.timeout(WAIT_S):
        while (told := (await api.client.get(f"/v1/handles/{handles[2]}")).json())["waits_for"] is None:
            await asyncio.sleep(0.05)
    assert told["waits_for"]["kind"] == "rate"
    assert told["waits_for"]["estimate_s"] > 50
    for handle in handles:
        await api.client.post(f"/v1/handles/{handle}/cancel")


async def test_what_its_tool_has_logged_is_told_of_a_call_until_its_run_is_deleted(api):
    run_id = await api.begin('call narrate {"text": "so far so good"}')
    await api.ended(run_id)
    path = f"/v1/runs/{run_id}/calls/{run_id}.1.0/log"
    log = (await api.client.get(path)).json()
    [attempt] = log["attempts"]
    [line] = attempt["lines"]
    assert (log["lost"], attempt["attempt"], attempt["worker"][:2]) == (0, 1, "io")
    assert (line["level"], line["logger"], line["text"]) == ("info", "narrator", "so far so good")
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,))
    [hidden] = (await api.client.get(path, headers={"authorization": f"Bearer {key}"})).json()["attempts"][0]["lines"]
    assert hidden == {**line, "logger": "hidden (8 bytes)", "text": "hidden (14 bytes)"}
    other, _ = await api.door.keyring.add(scopes=(Scope.PAYLOADS,), tenant="other")
    assert (await api.client.get(path, headers={"authorization": f"Bearer {other}"})).status_code == 404
    assert (await api.client.get(f"/v1/runs/{run_id}/calls/another.1.0/log")).status_code == 404
    await api.client.delete(f"/v1/runs/{run_id}")
    assert not await api.door.client.exists(api.door.settings.keys.call_log(f"{run_id}.1.0"))
