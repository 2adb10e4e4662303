"""What an id means, asked over HTTP."""

import secrets

import pytest

from benchmarks.commands import counted
from tests.run import machine
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.run.terms import RunTerms

ADD = 'call add {"a": 2, "b": 3}'


async def found(api, text, **headers):
    answer = await api.client.get("/v1/find", params={"q": text}, headers=headers)
    assert answer.status_code == 200, answer.text
    return [(each["kind"], each["call_id"] or each["run_id"]) for each in answer.json()["found"]]


async def test_W2_whatever_id_is_given_what_has_it_is_found(api):
    run_id = await api.begin(f"{ADD} then {ADD}")
    run = await api.ended(run_id)
    call_id = f"{run_id}.1.0"
    asked_as = run["calls"][0]["requested_id"]
    asked = {"arguments": {"value": 1}, "patience_s": 0}
    handle = (await api.client.post("/v1/tools/echo/call", json=asked)).json()["handle"]
    assert await found(api, run_id) == [("run", run_id)]
    assert await found(api, run_id[:4]) == [("run", run_id)]
    assert await found(api, call_id) == [("call", call_id)]
    assert await found(api, f"{run_id[:6]}.1.0") == [("call", call_id)]
    [(kind, _)] = await found(api, handle)
    assert kind == "handle"
    assert run["calls"][0]["call_id"] == call_id
    assert [kind for kind, _ in await found(api, asked_as)] == ["call"]
    for url in [each["url"] for each in (await api.client.get("/v1/find", params={"q": run_id})).json()["found"]]:
        assert (await api.client.get(url)).status_code == 200


async def test_W2_a_call_is_found_by_the_id_that_its_model_gave_it_in_this_tenant_alone(api):
    run_id = await api.begin(ADD)
    asked_as = (await api.ended(run_id))["calls"][0]["requested_id"]
    assert await found(api, asked_as) == [("call", f"{run_id}.1.0")]  # the newest that is called so
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,), tenant="acme")
    for text in (run_id, run_id[:5], f"{run_id}.1.0", asked_as):
        assert await found(api, text, authorization=f"Bearer {key}") == []
    await api.client.delete(f"/v1/runs/{run_id}")
    assert await found(api, asked_as) == []
    assert await found(api, run_id[:8]) == []


async def stored(api, *ids, tenant=""):
    for run_id in ids:
        terms = RunTerms(max_turns=9, tenant=tenant)
        await api.door.looking.store.begin(machine.STARTED.model_copy(update={"run_id": run_id, "terms": terms}))


async def test_several_runs_that_begin_alike_are_all_told_and_those_below_them_are_not(api):
    start = secrets.token_hex(3)
    ours = [f"{start}a", f"{start}b", f"{start}b-c"]
    await stored(api, *ours, *(f"{start}a.1.{n}" for n in range(300)), f"{start}a.1.0.2.0")
    await stored(api, f"{start}aa", tenant="other")
    assert await found(api, start) == [("run", run_id) for run_id in ours]
    assert await found(api, f"{start}a.1.7") == [("run", f"{start}a.1.7")]


async def test_W2_a_look_up_is_a_few_commands_however_many_runs_there_are(api):
    start = secrets.token_hex(3)
    await stored(api, *(f"{start}{n:03}" for n in range(300)))
    await found(api, f"{start}111")

    async def ask():
        for _ in range(10):
            assert await found(api, f"{start}29") == [("run", f"{start}29{n}") for n in range(10)]

    busy, idle = await counted(api.door.client, ask)
    each = busy.for_each(10, idle)
    assert each.reads <= 6
    assert not {"scan", "zscan", "keys", "hgetall", "smembers"} & set(each.commands)


@pytest.mark.parametrize("text", ["*", "abc", "[", "\\", "." * 300, "a.1.0", "x.999999999.999999999", "\u202e", "%00"])
async def test_what_is_nobodys_id_is_nothing(api, text):
    assert await found(api, text) == []


async def test_no_text_and_a_book_are_refused(api):
    for text in ("", "x" * 10_000):
        answer = await api.client.get("/v1/find", params={"q": text})
        assert answer.status_code in {414, 422, 431}, answer.status_code
