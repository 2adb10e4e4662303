"""How all stands, trees of agents, and dead letters in bulk, over HTTP."""

import asyncio
import json
import time

import pytest

from tests.http.fleet_of_doors import WAIT_S
from toolfleet.calls import ToolCall
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.doors.http.dead import alone
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.orchestrator.status.dead_letters import LOOKED_AT, DeadLetters

LEAVES = ("runs", "input_tokens", "output_tokens", "cost", "calls", "failed")


def leaves(branch):
    """Every branch of a tree, by itself."""
    return [branch["own"], *(leaf for child in branch["children"] for leaf in leaves(child))]


async def test_W7_a_tree_of_agents_tells_each_branchs_sums_and_they_are_those_of_its_leaves(api, http_fleet, model):
    helper = Agent("helper", "Does one thing.", "You help.", tools=["echo", "fail"])
    child = "call echo {} then call fail {}".format('{"value": 1}', '{"kind": "value"}')
    asked = " and ".join(f"call helper {json.dumps({'task': child})}" for _ in range(5))
    async with Orchestrator(model, agents=[helper], settings=http_fleet.settings) as orchestrator:
        run = await orchestrator.run(f"{asked} then call echo {json.dumps({'value': 2})}")
    told = (await api.client.get(f"/v1/runs/{run.run_id}/tree")).json()
    assert [branch["agent"] for branch in told["children"]] == ["helper"] * 5
    assert told["own"]["calls"] == 6
    assert [branch["total"]["failed"] for branch in told["children"]] == [1] * 5
    for name in LEAVES:
        assert told["total"][name] == pytest.approx(sum(leaf[name] for leaf in leaves(told)))
    assert told["total"]["runs"] == 6
    assert told["total"]["input_tokens"] == run.usage.input_tokens > told["own"]["input_tokens"]


async def test_a_branch_that_is_gone_keeps_no_other_from_being_told(api, http_fleet, model):
    helper = Agent("helper", "Does one thing.", "You help.", tools=["echo"])
    asked = " and ".join(f"call helper {json.dumps({'task': 'hello'})}" for _ in range(2))
    async with Orchestrator(model, agents=[helper], settings=http_fleet.settings) as orchestrator:
        run = await orchestrator.run(asked)
    await api.client.delete(f"/v1/runs/{run.run_id}.1.0")
    told = (await api.client.get(f"/v1/runs/{run.run_id}/tree")).json()
    assert [branch["state"] for branch in told["children"]] == [None, "done"]


async def test_an_overview_tells_how_runs_workers_and_queues_stand(api):
    await api.ended(await api.begin("hello"))
    told = (await api.client.get("/v1/overview")).json()
    assert told["runs"]["by_state"]["done"] >= 1
    assert told["runs"]["stored"] == sum(told["runs"]["by_state"].values()) > 0
    assert told["workers"] == (await api.client.get("/v1/workers")).json()["workers"] != []
    assert {queue["queue"] for queue in told["queues"]} >= {"io"}
    assert told["limits"]["tools"] == (await api.client.get("/v1/limits")).json()["tools"] != []
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,), tenant="nobody-else", tools=("add",))
    told = (await api.client.get("/v1/overview", headers={"authorization": f"Bearer {key}"})).json()
    assert (told["runs"]["stored"], told["queues"], told["workers"][0]["tools"]) == (0, None, ["add"])
    assert (told["limits"], told["budgets"], told["budgets_stored"]) == (None, [], 0)


async def test_an_overview_tells_a_tenant_its_own_budgets_however_many_others_have_some(api):
    budgets = TenantBudgets(api.door.client, api.door.settings)
    tenants = [f"budget-{n:02}" for n in range(25)]
    for tenant in tenants:
        await budgets.set(tenant, "day", Bounds(usd=5))
    try:
        everybodys = (await api.client.get("/v1/overview")).json()
        key, _ = await api.door.keyring.add(scopes=(Scope.READ,), tenant=tenants[-1])
        own = (await api.client.get("/v1/overview", headers={"authorization": f"Bearer {key}"})).json()
    finally:
        for tenant in tenants:
            await budgets.remove(tenant, "day")
    assert everybodys["budgets_stored"] >= 25 > len(everybodys["budgets"]) > 0
    assert [(each["tenant"], each["amounts"]["usd"]["remaining"]) for each in own["budgets"]] == [(tenants[-1], 5.0)]


@pytest.fixture
async def letters(api):
    """250 letters about calls of `echo` that crashed, three of another tool, and one that nobody signed."""
    stream, run_id = api.door.settings.keys.dead_letters(), f"dead{time.monotonic_ns():x}"
    pipeline = api.door.client.pipeline(transaction=False)
    for n in range(254):
        tool = "echo" if n < 251 else "add"
        arguments = json.dumps({"value": n} if tool == "echo" else {"a": n, "b": 1})
        call = ToolCall(
            call_id=f"{run_id}.1.{n}", run_id=run_id, tool=tool, arguments=arguments, deadline_unix_s=0, reply_to="x"
        )
        text, mac = api.door.seal.close_call(call)
        reason = "not signed" if n == 250 else "crashed <b>"
        said = {"reason": reason, "task": tool, "id": call.call_id, "text": text, "mac": "0" if n == 250 else mac}
        pipeline.xadd(stream, said)
    await pipeline.execute()
    yield run_id
    await api.door.client.delete(stream)


async def test_W10_letters_are_counted_then_replayed_on_the_server_each_once(api, letters):
    counted = (await api.client.get("/v1/dead", params={"tool": "echo", "reason": "CRASHED", "limit": 10})).json()
    assert (counted["count"], len(counted["letters"]), counted["by_tool"]) == (250, 10, {"echo": 250})
    wrong = await api.client.post("/v1/dead/replay", json={"tool": "echo", "reason": "crashed", "expected": 249})
    assert (wrong.status_code, wrong.json()["count"]) == (409, 250)
    asked = {"tool": "echo", "reason": "crashed", "expected": 250}
    both = await asyncio.gather(*(api.client.post("/v1/dead/replay", json=asked) for _ in range(4)))
    done = [answer.json()["done"] for answer in both if answer.status_code == 200]
    assert done == [250]
    assert {answer.status_code for answer in both} == {200, 409}
    redis, keys = api.door.client, api.door.settings.keys
    async with asyncio.timeout(WAIT_S):
        while None in await redis.mget([keys.result(f"{letters}.1.{n}") for n in range(250)]):
            await asyncio.sleep(0.05)
    rest = (await api.client.get("/v1/dead")).json()
    assert (rest["count"], rest["by_tool"]) == (4, {"add": 3, "echo": 1})


async def test_W10_letters_are_listed_page_by_page_each_once_and_garbage_is_no_page(api, letters):
    asked, seen, pages = {"reason": "crashed", "limit": 100}, [], []
    while not pages or pages[-1]["after"]:
        pages.append((await api.client.get("/v1/dead", params=asked)).json())
        seen += [letter["call_id"] for letter in pages[-1]["letters"]]
        asked["after"] = pages[-1]["after"]
    assert seen == [f"{letters}.1.{n}" for n in reversed(range(254)) if n != 250]
    assert [(page["count"], page["is_at_least"]) for page in pages] == [(253, False), (153, False), (53, False)]
    for garbage in ("nonsense", "1-1-1", "0-0", "\u0661-0", f"{'9' * 30}-0"):
        assert (await api.client.get("/v1/dead", params={"after": garbage})).status_code == 400, garbage


async def test_W10_a_request_reads_a_thousand_letters_at_most_and_what_it_counted_is_what_is_handled(api, letters):
    stream, client = api.door.settings.keys.dead_letters(), api.door.client
    async with client.pipeline(transaction=False) as pipeline:
        for n in range(LOOKED_AT - 100):
            pipeline.xadd(stream, {"reason": f"newer {n}", "task": "add"})
        await pipeline.execute()
    before = await read_of(client)
    first = (await api.client.get("/v1/dead", params={"tool": "add"})).json()
    assert await read_of(client) - before == LOOKED_AT // 100 + 1
    assert (first["count"], first["is_at_least"], len(first["letters"])) == (LOOKED_AT - 100 + 3, True, 50)
    rest = (await api.client.get("/v1/dead", params={"tool": "echo"})).json()
    assert (rest["count"], rest["is_at_least"]) == (97, True)
    older = (
        await api.client.get("/v1/dead", params={"tool": "echo", "after": rest["letters"][-1]["letter_id"]})
    ).json()
    assert (older["count"], older["is_at_least"], older["after"]) == (201, False, older["letters"][-1]["letter_id"])
    dropped = await api.client.post("/v1/dead/drop", json={"tool": "echo", "expected": 97})
    assert dropped.json()["done"] == 97
    assert await client.xlen(stream) == LOOKED_AT - 100 + 254 - 97


async def read_of(client):
    """How often dead letters have been read on the server."""
    return (await client.info("commandstats")).get("cmdstat_xrevrange", {"calls": 0})["calls"]


async def test_letters_are_handled_as_long_as_the_lock_is_renewed_and_no_further_once_another_has_it(api, letters):
    client, key = api.door.client, api.door.settings.keys.handling_dead()
    meant = await DeadLetters(client, api.door.settings).newest()
    left_ms = []

    async def handle():
        async with alone(api.door, "drop") as portions:
            async for _ in portions.of(meant):
                left_ms.append(await client.pttl(key))
                # As if the first portion had taken nearly as long as it may, and the second one longer.
                await (client.set(key, "another's") if len(left_ms) == 2 else client.pexpire(key, 5000))

    with pytest.raises(Problem, match="stopped after 200 of 254 letters"):
        await handle()
    assert min(left_ms) > 100_000
    assert await client.getdel(key) == b"another's"


async def test_W10_what_nobody_signed_is_not_replayed_and_what_is_dropped_is_gone(api, letters):
    told = (await api.client.post("/v1/dead/replay", json={"reason": "not signed", "expected": 1})).json()
    assert (told["done"], told["refused"]) == (0, 1)
    assert "only what this fleet has signed" in next(iter(told["why"]))
    assert (await api.client.post("/v1/dead/drop", json={"tool": "echo", "expected": 251})).json()["done"] == 251
    assert (await api.client.get("/v1/dead")).json()["count"] == 3
    key, _ = await api.door.keyring.add(scopes=(Scope.RUN, Scope.APPROVE))
    headers = {"authorization": f"Bearer {key}"}
    for method, path in (("GET", "/v1/dead"), ("POST", "/v1/dead/drop"), ("POST", "/v1/dead/replay")):
        body = {"json": {"expected": 3}} if method == "POST" else {}
        assert (await api.client.request(method, path, headers=headers, **body)).status_code == 403
