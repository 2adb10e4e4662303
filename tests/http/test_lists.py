"""What waits for a person, and handles, over all runs of a tenant."""

import asyncio

import pytest

from tests.http.fleet_of_doors import WAIT_S
from tests.page.visitors import visitor
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


async def pages(api, path, headers, **asked):
    """What each page of a list has, to its end."""
    found, after = [], ""
    while after is not None:
        answer = await api.client.get(path, params={**asked, "after": after}, headers=headers)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        after = told.pop("after")
        found.append(next(iter(told.values())))
    return found


async def test_each_run_that_waits_stands_on_one_page_also_when_others_are_decided_between(api, acme):
    ours = await acme()
    ids = [await begun(api, ours) for _ in range(5)]
    first = (await api.client.get("/v1/approvals", params={"limit": 2}, headers=ours)).json()
    assert [each["run_id"] for each in first["approvals"]] == ids[:2]
    await api.client.delete(f"/v1/runs/{ids[1]}", headers=ours)  # the one that the cursor names
    following = {"limit": 2, "after": first["after"]}
    second = (await api.client.get("/v1/approvals", params=following, headers=ours)).json()
    assert [each["run_id"] for each in second["approvals"]] == ids[2:4]
    whole = [each["run_id"] for page in await pages(api, "/v1/approvals", ours, limit=1) for each in page]
    assert whole == [ids[0], *ids[2:]]
    for run_id in whole:
        await api.client.delete(f"/v1/runs/{run_id}", headers=ours)


async def test_each_open_handle_stands_on_one_page_behind_however_many_that_have_ended(api, acme):
    ours = await acme()

    async def handle(tool, **arguments):
        asked = {"arguments": arguments, "patience_s": 0}
        return (await api.client.post(f"/v1/tools/{tool}/call", json=asked, headers=ours)).json()["handle"]

    jobs = [await handle("elsewhere", job=f"j{n}") for n in range(3)]
    ended = [await handle("echo", value=n) for n in range(4)]
    for each in ended:
        await api.client.get(f"/v1/handles/{each}", params={"wait": 5}, headers=ours)
    async with asyncio.timeout(WAIT_S):  # until their tools have submitted them
        while len({each.get("external_id") for each in await told_open(api, ours)}) < 3:
            await asyncio.sleep(0.05)
    by_page = await pages(api, "/v1/handles", ours, limit=2, open=True)
    assert sorted(each["task_id"] for page in by_page for each in page) == sorted(jobs)
    assert sorted(each["external_id"] for page in by_page for each in page) == ["j0", "j1", "j2"]
    whole = [each["task_id"] for page in await pages(api, "/v1/handles", ours, limit=3) for each in page]
    assert {*jobs, *ended} <= set(whole)
    assert len(whole) == len(set(whole))
    for each in jobs:
        await api.client.post(f"/v1/handles/{each}/cancel", headers=ours)


async def told_open(api, headers):
    return (await api.client.get("/v1/handles", params={"open": True}, headers=headers)).json()["handles"]


@pytest.mark.parametrize("path", ["/v1/approvals", "/v1/handles"])
async def test_a_cursor_that_was_not_given_out_is_refused(api, path):
    assert (await api.client.get(path, params={"after": "nonsense"})).status_code == 400


async def test_a_run_of_a_newer_version_stops_no_list_and_no_search(api, acme):
    ours = await acme()
    run_id, other = await begun(api, ours), await begun(api, ours)
    door = api.door
    link = (await door.looking.store.load(run_id)).link
    event = b'{"type":"something_new"}'
    seal = door.seal.sign_entry(run_id, link.position + 1, link.digest_with(event))
    await door.client.xadd(door.settings.keys.run(run_id), {"e": event, "s": seal})
    listed = (await api.client.get("/v1/runs", headers=ours)).json()["runs"]
    assert {run_id, other} <= {each["run_id"] for each in listed}
    newer, readable = await awaited(api, ours)
    assert (newer["run_id"], "newer" in newer["problem"]) == (run_id, True)
    assert readable["run_id"] == other
    assert sum((await api.client.get("/v1/overview", headers=ours)).json()["runs"]["by_state"].values()) >= 2
    assert (await api.client.get("/v1/find", params={"q": other[:12]}, headers=ours)).json()["found"]
    for asked in (run_id, run_id[:12], f"{run_id}.1.0"):
        assert (await api.client.get("/v1/find", params={"q": asked}, headers=ours)).status_code == 200
    key = ours["authorization"].removeprefix("Bearer ")
    async with visitor(api, key) as user:
        for path in ("/", "/runs", "/approvals", "/jobs", f"/find?q={other[:12]}"):
            page = await user.get(path, follow_redirects=True)
            assert page.status_code == 200, path
        assert run_id in (await user.get("/runs")).text
        assert "newer" in (await user.get("/approvals")).text
        one = await user.get(f"/runs/{run_id}")
        assert (one.status_code, "newer" in one.text) == (500, True)
    await door.client.delete(door.settings.keys.run(run_id), door.settings.keys.head(run_id))
    await api.client.delete(f"/v1/runs/{other}", headers=ours)
