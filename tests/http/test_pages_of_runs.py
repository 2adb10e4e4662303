"""The list of runs, page by page, over HTTP."""

import secrets

import pytest

from benchmarks.commands import counted
from tests.http.fleet_of_doors import api_of
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.wire import Seal

STORED = 100_000
AT_ONCE = 5000
ASKED = 20


async def stored(client, settings, count, *, state="done", tenant="", first=0):
    """So many runs as lists know them, begun a millisecond apart; their ids."""
    seal, keys = Seal(settings), settings.keys
    ids = [f"{first + n:016x}" for n in range(count)]
    for start in range(0, count, AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for n, run_id in enumerate(ids[start : start + AT_ONCE], first + start):
            sealed = seal.close_kept(tenant.encode(), keys.head(run_id))
            head = {"state": state, "model": "m", "title": run_id, "turn": 1, "calls": 1, "tenant": sealed}
            pipeline.hset(keys.head(run_id), mapping=head | {"started_ms": n, "updated_ms": n, "awaiting": 0})
            for name in {keys.runs(), keys.runs_of(tenant) if tenant else keys.runs()}:
                pipeline.zadd(name, {run_id: 1_700_000_000_000_000 + 1000 * n})
        await pipeline.execute()
    return ids


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client
        cursor = 0
        while True:
            cursor, found = await client.scan(cursor, f"{settings.namespace}:*", count=AT_ONCE)
            if found:
                await client.unlink(*found)
            if not cursor:
                break


@pytest.fixture
async def api(settings):
    async with api_of(settings) as api:
        yield api


async def pages(api, **asked):
    """The ids of each page, to the last one."""
    told, before = [], ""
    while before is not None:
        answer = await api.client.get("/v1/runs", params={**asked, "before": before})
        assert answer.status_code == 200, answer.text
        told.append([run["run_id"] for run in answer.json()["runs"]])
        before = answer.json()["before"]
    return told


async def test_W1_the_first_page_of_100000_runs_is_a_few_commands_and_no_search(api, client, settings):
    ids = await stored(client, settings, STORED)
    key, _ = await Keyring(client, settings, Seal(settings)).add(scopes=(Scope.READ,))
    headers = {"authorization": f"Bearer {key}"}
    await api.client.get("/v1/runs", headers=headers)  # the script is loaded

    async def ask():
        for _ in range(ASKED):
            answer = await api.client.get("/v1/runs", headers=headers)
            assert [run["run_id"] for run in answer.json()["runs"]] == ids[:-51:-1]

    busy, idle = await counted(client, ask)
    each = busy.for_each(ASKED, idle)
    assert each.reads <= 5
    inside = {"hgetall": 50, "zrevrange": 1, "zcard": 2}  # what the one script reads
    assert all(each.commands.get(name, 0) <= most for name, most in inside.items())
    assert sum(calls for name, calls in each.commands.items() if name not in inside) <= 5
    assert not {"scan", "zscan", "sscan", "hscan", "keys"} & set(each.commands)


async def test_pages_have_every_run_once_whatever_begins_and_ends_meanwhile(api, client, settings):
    ids = await stored(client, settings, 25)
    first = (await api.client.get("/v1/runs", params={"limit": 10})).json()
    await stored(client, settings, 7, first=1000)
    await client.delete(settings.keys.head(ids[12]))
    rest = (await api.client.get("/v1/runs", params={"limit": 100, "before": first["before"]})).json()
    told = [run["run_id"] for run in first["runs"] + rest["runs"]]
    assert told == [run_id for run_id in reversed(ids) if run_id != ids[12]]
    assert await client.zscore(settings.keys.runs(), ids[12]) is None
    assert sum(map(len, await pages(api, limit=3))) == 31


async def test_runs_that_began_in_one_moment_are_on_one_page_each(api, client, settings):
    ids = await stored(client, settings, 7)
    await client.zadd(settings.keys.runs(), dict.fromkeys(ids, 1_700_000_000_000_000))
    assert await pages(api, limit=2) == [ids[:-3:-1], ids[-3:-5:-1], ids[-5:-7:-1], ids[:1]]


async def test_rare_states_are_found_page_by_page_however_many_others_there_are(api, client, settings):
    rare = await stored(client, settings, 3, state="failed")
    await stored(client, settings, 4100, first=100)
    rare += await stored(client, settings, 2, state="cancelled", first=9000)
    told = await pages(api, state=["failed", "cancelled"], limit=10)
    assert sorted(run_id for page in told for run_id in page) == rare
    assert len(told) == 3  # each looks at 2,000


async def test_a_page_has_the_runs_of_its_tenant_alone(api, client, settings):
    theirs = await stored(client, settings, 5, tenant="acme")
    ours = await stored(client, settings, 5, first=100)
    key, _ = await Keyring(client, settings, Seal(settings)).add(scopes=(Scope.READ,), tenant="acme")
    headers = {"authorization": f"Bearer {key}"}
    told = (await api.client.get("/v1/runs", headers=headers)).json()["runs"]
    assert [run["run_id"] for run in told] == theirs[::-1]
    assert [run_id for page in await pages(api, limit=2) for run_id in page] == ours[::-1]


@pytest.mark.parametrize("before", ["x", "1_", "_1", "-1_x", "1" * 18 + "_x", "1e5_x", "nan_x", "²_x"])
async def test_what_is_no_cursor_is_refused(api, before):
    answer = await api.client.get("/v1/runs", params={"before": before})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:toolfleet:problem:bad-cursor")


async def test_a_page_is_no_longer_asked_for_by_a_number(api):
    assert (await api.client.get("/v1/runs", params={"offset": 50})).status_code == 422


async def test_a_head_of_garbage_is_left_out(api, client, settings):
    ids = await stored(client, settings, 3)
    await client.hset(settings.keys.head(ids[1]), "state", secrets.token_bytes(20))
    assert await pages(api, limit=2) == [[ids[2], ids[0]]]
