"""A call that has failed is made again in a new run; what its neighbours have done is not done again."""

from __future__ import annotations

import json

import pytest

from toolfleet import Orchestrator
from toolfleet.calls import Failed
from toolfleet.orchestrator.doors.http.key_store import Scope

FAIL = "call never_done {}"


@pytest.fixture
async def ada(api):
    """Headers of Ada's key, and what histories call her."""
    key, stored = await api.door.keyring.add("desk", subject="ada", scopes=(Scope.RUN,))
    return {"authorization": f"Bearer {key}"}, f"desk {stored.key_id} (ada)"


def counted(path, fails=0):
    return f"call counted {json.dumps({'path': str(path), 'fails': fails})}"


def lines(path):
    return len(path.read_text().splitlines())


def retry(api, call_id, **asked):
    return api.client.post(f"/v1/runs/{call_id.rsplit('.', 2)[0]}/calls/{call_id}/retry", **asked)


async def events_of(api, run_id):
    return [(kind, data) for _, kind, data in await api.events(run_id)]


async def test_W16_a_call_that_failed_is_made_again_and_its_neighbours_are_not(api, ada, tmp_path):
    headers, name = ada
    done, failed = tmp_path / "done", tmp_path / "failed"
    before = await api.ended(await api.begin(f"{counted(done)} and {counted(failed, fails=1)} then {counted(done)}"))
    assert [call["result"]["type"] for call in before["calls"]] == ["returned", "failed", "returned"]
    run_id = before["run_id"]
    twice = headers | {"idempotency-key": run_id}
    begun = await retry(api, f"{run_id}.1.1", headers=twice)
    assert begun.status_code == 202, begun.text
    assert (await retry(api, f"{run_id}.1.1", headers=twice)).json() == begun.json()
    new = await api.ended(begun.json()["run_id"])
    assert new["state"] == "done"
    assert (lines(done), lines(failed)) == (3, 2)  # the new run goes on from there, and takes the second turn by itself
    kept, again = new["calls"][0], new["calls"][1]
    assert kept["result"]["content"] == before["calls"][0]["result"]["content"]
    assert (again["arguments"], again["result"]["content"]) == (before["calls"][1]["arguments"], "called 2 times")
    assert new["messages"][:3] == before["messages"][:3]
    kinds = await events_of(api, new["run_id"])
    assert [kind for kind, _ in kinds][:3] == ["run_started", "model_replied", "calls_back"]
    assert kinds[0][1]["asked_as"] == {"forked_from": run_id, "retried": f"{run_id}.1.1", "by": name}
    # By itself, or with its result.
    assert list(kinds[3][1].get("sent", kinds[3][1])["deadlines_unix_s"]) == [f"{new['run_id']}.1.1"]
    assert kinds[1][1]["usage"]["input_tokens"] == 0  # the first run has paid for this reply
    assert (await api.client.get(f"/v1/runs/{run_id}")).json() == before


async def test_what_tools_shared_before_and_beside_a_call_is_there_when_it_is_made_again(api, tmp_path):
    first, second = (f'call update {{"state": {{"seen": ["{letter}"]}}}}' for letter in "ab")
    asked = f"{first} then {second} and {counted(tmp_path / 'f', fails=1)}"
    before = await api.ended(await api.begin(asked, state={"seen": ["x"]}, merging={"seen": "append"}))
    assert before["values"] == {"seen": ["x", "a", "b"]}
    begun = await retry(api, f"{before['run_id']}.2.1")
    new = await api.ended(begun.json()["run_id"])
    assert (new["terms"]["state"], new["values"]) == ({"seen": ["x", "a"]}, before["values"])


async def test_a_call_whose_effect_may_have_happened_is_made_again_only_if_that_is_said(api):
    run = await api.ended(await api.begin(FAIL))
    assert run["calls"][0]["result"]["kind"] == "timed_out"
    refused = await retry(api, f"{run['run_id']}.1.0")
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2].rpartition(":")[2]) == (409, "may-have-run")
    begun = await retry(api, f"{run['run_id']}.1.0", json={"force": True})
    new = await api.ended(begun.json()["run_id"])
    assert new["calls"][0]["result"]["kind"] == "timed_out"


@pytest.mark.parametrize("asked", ['call add {"a": 1, "b": 2}', 'call with_token {"token": "hunter2"}'])
async def test_a_call_that_did_not_fail_or_whose_secrets_are_gone_is_not_made_again(api, asked):
    run = await api.ended(await api.begin(asked))
    refused = await retry(api, f"{run['run_id']}.1.0")
    assert refused.status_code == 409, refused.text


async def test_a_call_is_not_made_again_while_another_of_its_reply_goes_on(api, tmp_path):
    run_id = await api.begin(f'call wait {{"seconds": 60}} and {counted(tmp_path / "f", fails=1)}')
    async with api.client.stream("GET", f"/v1/runs/{run_id}/events", params={}) as _:
        while (await api.client.get(f"/v1/runs/{run_id}/calls/{run_id}.1.1")).json()["state"] != "failed":
            pass
    assert (await retry(api, f"{run_id}.1.1")).status_code == 409
    await api.client.post(f"/v1/runs/{run_id}/cancel")


async def test_nobody_makes_a_call_again_that_is_anothers_or_is_none_or_without_the_scope(api, tmp_path):
    run = await api.ended(await api.begin(counted(tmp_path / "f", fails=1)))
    call_id = f"{run['run_id']}.1.0"
    tried = {}
    for name, allowed in {
        "another": {"tenant": "other"},
        "reader": {"scopes": (Scope.READ, Scope.PAYLOADS)},
        "narrow": {"tools": ("echo",)},
    }.items():
        key, _ = await api.door.keyring.add(**allowed)
        tried[name] = (await retry(api, call_id, headers={"authorization": f"Bearer {key}"})).status_code
    assert tried["another"] == 404
    assert tried["reader"] == 403
    assert tried["narrow"] == 202  # as with a fork: the new run is offered what the key includes, and no more
    for wrong in (f"{run['run_id']}.1.7", f"{run['run_id']}.9.0", "x.1.0"):
        path = f"/v1/runs/{run['run_id']}/calls/{wrong}/retry"
        assert (await api.client.post(path)).status_code == 404
    assert (await retry(api, call_id, json={"force": "yes"})).status_code == 422


async def test_a_call_is_made_again_by_whichever_orchestrator_has_the_model(api, http_fleet, model, tmp_path):
    key, _ = await api.door.keyring.add(tenant="acme", subject="ada")
    asked = {"question": counted(tmp_path / "f", fails=1)}
    headers = {"authorization": f"Bearer {key}"}
    run_id = (await api.client.post("/v1/runs", json=asked, headers=headers)).json()["run_id"]
    async with Orchestrator(settings=http_fleet.settings) as without_model:
        assert isinstance((await without_model.wait(run_id)).calls[0].result, Failed)
        new = await without_model.wait(await without_model.retry_call(f"{run_id}.1.0"))
    assert new.calls[0].result.content == "called 2 times"
    assert (new.terms.tenant, new.terms.subject, new.asked_as["retried"]) == ("acme", "ada", f"{run_id}.1.0")
