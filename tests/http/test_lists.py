"""What waits for a person, and handles, over all runs of a tenant."""

import asyncio

import pytest

from tests.http.fleet_of_doors import WAIT_S
from toolfleet.orchestrator.doors.http.key_store import Scope

PAY = 'call pay {"amount": 5}'


@pytest.fixture
async def acme(api):
    """Headers of keys of a tenant of this test's own."""

    async def make(*scopes):
        key, _ = await api.door.keyring.add(tenant="acme-lists", scopes=scopes or (Scope.RUN, Scope.APPROVE))
        return {"authorization": f"Bearer {key}"}

    return make


async def begun(api, headers):
    asked = await api.client.post("/v1/runs", json={"question": PAY}, headers=headers)
    run_id = asked.json()["run_id"]
    await api.events(run_id, most=3, **headers)
    return run_id


async def awaited(api, headers):
    return (await api.client.get("/v1/approvals", headers=headers)).json()["approvals"]


async def test_calls_that_wait_for_a_person_are_listed_until_they_are_decided(api, acme):
    ours = await acme()
    ids = [await begun(api, ours) for _ in range(3)]
    told = await awaited(api, ours)
    assert [(each["run_id"], each["tool"], each["problem"]) for each in told] == [(id_, "pay", "") for id_ in ids]
    assert told[0]["arguments"] == '{"amount": 5}'
    hidden = await awaited(api, await acme(Scope.READ))
    assert hidden[0]["arguments"] == "hidden (13 bytes)"
    assert not {each["run_id"] for each in await awaited(api, None)} & set(ids)
    decided = {"call_id": told[1]["call_id"], "granted": False}
    await api.client.post(f"/v1/runs/{ids[1]}/approvals", json=decided, headers=ours)
    await api.client.delete(f"/v1/runs/{ids[2]}", headers=ours)
    async with asyncio.timeout(WAIT_S):
        while [each["run_id"] for each in await awaited(api, ours)] != [ids[0]]:
            await asyncio.sleep(0.05)
    await api.client.delete(f"/v1/runs/{ids[0]}", headers=ours)


async def test_a_run_that_cannot_be_read_keeps_no_other_from_being_listed(api, acme):
    ours = await acme()
    ids = [await begun(api, ours) for _ in range(2)]
    redis, keys = api.door.client, api.door.settings.keys
    [(first, _), *_] = await redis.xrange(keys.run(ids[0]))
    await redis.xdel(keys.run(ids[0]), first)
    broken, whole = await awaited(api, ours)
    assert (broken["run_id"], broken["call_id"], bool(broken["problem"])) == (ids[0], "", True)
    assert whole["run_id"] == ids[1]
    await redis.delete(keys.head(ids[0]), keys.run(ids[0]))
    await api.client.delete(f"/v1/runs/{ids[1]}", headers=ours)


async def test_handles_are_listed_with_how_their_calls_stand(api, acme):
    ours = await acme()
    asked = {"arguments": {"job": "j1"}, "patience_s": 0}
    job = (await api.client.post("/v1/tools/elsewhere/call", json=asked, headers=ours)).json()["handle"]
    asked = {"arguments": {"value": 1}, "patience_s": 0}
    echo = (await api.client.post("/v1/tools/echo/call", json=asked, headers=ours)).json()["handle"]
    for handle in (job, echo):
        await api.client.get(f"/v1/handles/{handle}", params={"wait": 5 if handle == echo else 0}, headers=ours)
    told = {each["task_id"]: each for each in (await api.client.get("/v1/handles", headers=ours)).json()["handles"]}
    assert set(told) == {job, echo}
    assert (told[echo]["state"], told[echo]["result"]["content"]) == ("succeeded", "1")
    assert told[job]["tool"] == "elsewhere"
    assert job not in (await api.client.get("/v1/handles")).text
    await api.client.post(f"/v1/handles/{job}/cancel", headers=ours)
