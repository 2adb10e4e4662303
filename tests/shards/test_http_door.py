"""One HTTP door over several Redis servers: whose request it is, lists of all, and a server that is away."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus

import httpx
import pytest

from tests.cli.command import Terminal, interrupted, read_until
from tests.http.agui_front_end import asked
from tests.http.fleet_of_doors import read_events, served
from tests.shards.stages import obedient, shard_of, until
from toolfleet.connections import connect_async
from toolfleet.errors import InvalidSettings
from toolfleet.local.local_key import LocalKey
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import FunctionModel
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.shards.app import create_sharded_app
from toolfleet.shard_record import drain

HEADER = "toolfleet-shard"


@asynccontextmanager
async def door(shards, tmp_path, *, model=None):
    """A client of the one door of all shards, with the key of this machine's user."""
    local = LocalKey(tmp_path / "api.key")
    says_hello = FunctionModel(lambda _: AssistantMessage(content="hello"), name="hello")
    app = create_sharded_app(shards.settings(), model or says_hello, options=ApiOptions(local_key_file=local.path))
    async with served(app) as (url, _):
        headers = {"authorization": f"Bearer {local.made()}"}
        async with httpx.AsyncClient(base_url=url, timeout=30, headers=headers) as client:
            yield client


async def begun(client, **headers):
    answer = await client.post("/v1/runs", json={"question": "Hello?"}, headers=headers)
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["run_id"]
    assert answer.headers[HEADER] == shard_of(run_id)
    return run_id


async def ended(client, run_id):
    async with client.stream("GET", f"/v1/runs/{run_id}/events") as events:
        assert {type_ for _, type_, _ in await read_events(events)} >= {"run_started", "model_replied"}
    return (await client.get(f"/v1/runs/{run_id}")).json()


async def pages(client, **asked):
    told, before = [], ""
    while before is not None:
        answer = (await client.get("/v1/runs", params={**asked, "before": before})).json()
        told.append([run["run_id"] for run in answer["runs"]])
        before = answer["before"]
    return told


async def test_D9_one_door_begins_follows_lists_and_finds_runs_of_all_shards(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        ids = [await begun(client) for _ in range(6)]
        assert Counter(map(shard_of, ids)) == {"a": 3, "b": 3}
        for run_id in ids:
            run = await ended(client, run_id)
            assert (run["run_id"], run["state"], run["answer"]) == (run_id, "done", "hello")
        newest_first = ids[::-1]
        for limit in (1, 2, 4, 50):
            told = await pages(client, limit=limit)
            assert [run_id for page in told for run_id in page] == newest_first
        assert [run_id for page in await pages(client, limit=2, state="done") for run_id in page] == newest_first
        assert await pages(client, state="failed") == [[]]
        overview = (await client.get("/v1/overview")).json()
        assert (overview["runs"]["stored"], overview["runs"]["by_state"]) == (6, {"done": 6})
        assert overview["missing"] == {}
        for run_id in ids:
            for sought in (run_id, run_id[:8]):
                found = (await client.get("/v1/find", params={"q": sought})).json()["found"]
                assert [each["run_id"] for each in found] == [run_id]
        gone_on = await client.post(f"/v1/runs/{ids[1]}/messages", json={"question": "And now?"})
        assert gone_on.status_code == 202
        assert gone_on.headers[HEADER] == shard_of(ids[1])
        assert (await client.delete(f"/v1/runs/{ids[0]}")).status_code == 204
        assert ids[0] not in (await pages(client))[0]


async def test_D9_a_shard_that_is_down_is_named_by_its_own_requests_and_the_rest_goes_on(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        ids = [await begun(client) for _ in range(4)]
        there = [run_id for run_id in ids if shard_of(run_id) == "b"]
        here = [run_id for run_id in ids if run_id not in there]
        shards.servers["b"].kill()

        answer = await client.get(f"/v1/runs/{there[0]}")
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert (answer.json()["shard"], answer.headers[HEADER]) == ("b", "b")
        new = [await begun(client) for _ in range(3)]
        assert set(map(shard_of, new)) == {"a"}
        listed = (await client.get("/v1/runs")).json()
        assert {run["run_id"] for run in listed["runs"]} == {*here, *new}
        assert list(listed["missing"]) == ["b"]
        for path in ("/v1/overview", "/v1/queues", "/v1/tools", "/v1/approvals", "/v1/handles", "/v1/spending"):
            answer = await client.get(path)
            assert (answer.status_code, list(answer.json()["missing"])) == (200, ["b"]), path
        assert (await client.get("/v1/find", params={"q": there[0]})).json()["shard"] == "b"
        assert {(await client.get(path)).status_code for path in ("/healthz", "/readyz")} == {200}
        assert (await ended(client, new[0]))["state"] == "done"

        # A page that began while it was away has its runs once it is back: nothing is left out.
        first = (await client.get("/v1/runs", params={"limit": 2})).json()
        shards.servers["b"].start()

        async def is_back():
            return (await client.get(f"/v1/runs/{there[0]}")).status_code == 200

        await until(is_back)
        rest = (await client.get("/v1/runs", params={"before": first["before"]})).json()
        assert rest["missing"] == {}
        assert {run["run_id"] for run in (*first["runs"], *rest["runs"])} == {*ids, *new}


async def test_a_repeat_goes_to_the_shard_that_has_had_the_request_whatever_was_drained_since(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        firsts = {key: await begun(client, **{"idempotency-key": key}) for key in map(str, range(8))}
        assert set(map(shard_of, firsts.values())) == {"a", "b"}
        there = shards.settings("b")
        async with aclosing(connect_async(there)) as redis:
            await drain(redis, there, is_drained=True)

        async def is_drained():
            return {shard_of(await begun(client)) for _ in range(4)} == {"a"}

        await until(is_drained)
        assert {key: await begun(client, **{"idempotency-key": key}) for key in firsts} == firsts
        assert {shard_of(await begun(client, **{"idempotency-key": f"new{n}"})) for n in range(8)} == {"a"}


async def test_where_all_shards_drain_a_new_run_is_told_to_come_again(shards, tmp_path):
    shards.add("a", workers=False)
    async with door(shards, tmp_path) as client:
        async with aclosing(connect_async(shards.settings("a"))) as redis:
            await drain(redis, shards.settings("a"), is_drained=True)

        async def is_refused():
            return (await client.post("/v1/runs", json={"question": "Hello?"})).status_code != HTTPStatus.ACCEPTED

        await until(is_refused)
        answer = await client.post("/v1/runs", json={"question": "Hello?"})
        assert (answer.status_code, answer.headers["retry-after"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "2")
        assert answer.json()["type"] == "urn:toolfleet:problem:all-shards-drain"


async def test_calls_and_their_handles_are_of_the_shard_whose_worker_has_them(shards, tmp_path):
    shards.add("a", workers=False)
    shards.add("b")
    gate = tmp_path / "gate"
    async with door(shards, tmp_path, model=obedient()) as client:

        async def is_offered():
            return "later" in {tool["name"] for tool in (await client.get("/v1/tools")).json()["tools"]}

        await until(is_offered)
        asked = {"arguments": {"gate": str(gate)}, "patience_s": 0}
        submitted = await client.post("/v1/tools/later/call", json=asked)
        assert (submitted.status_code, submitted.headers[HEADER]) == (202, "b")
        handle = submitted.json()["handle"]
        assert [each["task_id"] for each in (await client.get("/v1/handles")).json()["handles"]] == [handle]
        [queue] = (await client.get("/v1/queues")).json()["queues"]
        assert queue["unsettled"] == 1
        assert (await client.get(f"/v1/queues/{queue['queue']}")).json()["unsettled"] == 1
        gate.touch()
        status = (await client.get(f"/v1/handles/{handle}", params={"wait": 30})).json()
        assert status["result"]["content"] == "at last"
        assert [each["worker"] for each in (await client.get("/v1/workers")).json()["workers"]]


async def test_an_artifact_is_read_from_the_shard_that_keeps_it(shards, tmp_path):
    shards.add("a", workers=False)
    shards.add("b")
    async with door(shards, tmp_path, model=obedient()) as client:

        async def is_offered():
            return "large" in {tool["name"] for tool in (await client.get("/v1/tools")).json()["tools"]}

        await until(is_offered)
        called = await client.post("/v1/tools/large/call", json={"arguments": {"kib": 3000}})
        assert called.headers[HEADER] == "b"
        kept = await client.get(f"/v1/artifacts/{called.json()['artifact']}")
        assert (kept.status_code, kept.headers[HEADER], len(kept.content)) == (200, "b", 3000 * 1024)
        assert (await client.get("/v1/artifacts/none")).status_code == 404
        shards.servers["a"].kill()

        async def is_named():
            return (await client.get("/v1/artifacts/none")).status_code == 503

        await until(is_named)


async def test_what_each_shard_has_for_itself_needs_its_name(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        for path in ("/v1/limits", "/v1/budget", "/v1/budgets/acme", "/v1/dead", "/metrics"):
            unnamed = await client.get(path)
            assert (unnamed.status_code, unnamed.json()["shards"]) == (400, ["a", "b"]), path
            named = await client.get(path, headers={HEADER: "b"})
            assert (named.status_code, named.headers[HEADER]) == (200, "b"), path
        for wrong in ("c", "", "A", "b~1", "x" * 10_000):
            assert (await client.get("/v1/limits", headers={HEADER: wrong})).status_code == 404


async def test_garbage_is_refused_and_strangers_are_told_nothing(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        run_id = await begun(client)
        for before in ("1_a=1_x c=", "1_", "2_a= b=%ff", "x", "0", "1_a=9999_x", "9" * 5000, "1_a=1_\x1b[2J"):
            assert (await client.get("/v1/runs", params={"before": before})).status_code in {400, 422, 200}, before
        for limit in ("0", "501", "-1", "x", "9" * 5000, "9007199254740993"):
            assert (await client.get("/v1/runs", params={"limit": limit})).status_code == 422, limit
        for path in (
            "/v1/runs/c~1",
            "/v1/runs/~1",
            "/v1/runs/b~",
            f"/v1/runs/{'x' * 5000}",
            "/nothing",
            "/v1/artifacts/x",
        ):
            assert (await client.get(path)).status_code == 404, path
        for path in ("/v1/runs", "/v1/overview", f"/v1/runs/{run_id}", "/v1/find?q=b~1", "/v1/artifacts/x", "/metrics"):
            answer = await client.get(path, headers={"authorization": "Bearer tf_wrong", HEADER: "a"})
            assert answer.status_code == 401, path
            answer = await client.get(path, headers={"authorization": "Bearer tf_wrong"})
            assert answer.status_code in {400, 401}, path
            assert "hello" not in answer.text
        answer = await client.post("/v1/responses", content=b"[" * 100_000, headers={"authorization": "Bearer tf_x"})
        assert answer.status_code == 401
        assert (await client.post("/v1/responses", content=b"[" * 100_000)).status_code in {400, 413, 422}


async def test_responses_go_on_where_the_one_before_was_answered(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        asked = {"model": "hello", "input": "Hello?"}
        firsts = [(await client.post("/v1/responses", json=asked)).json()["id"] for _ in range(2)]
        assert {shard_of(id_.removeprefix("resp_")) for id_ in firsts} == {"a", "b"}
        for first in firsts:
            answer = await client.post("/v1/responses", json={**asked, "previous_response_id": first})
            assert answer.status_code == 200, answer.text
            assert answer.headers[HEADER] == shard_of(first.removeprefix("resp_"))
            assert (await client.get(f"/v1/responses/{first}")).json()["id"] == first


async def test_U13_a_front_ends_request_is_sent_again_to_the_shard_that_has_its_run(shards, tmp_path):
    shards.add("a", "b", workers=False)
    found = set()
    async with door(shards, tmp_path) as client:
        for thread in range(6):
            body = asked("Hello?", thread=f"t{thread}")
            first, again = [await client.post("/agui", json=body) for _ in range(2)]
            assert first.text == again.text
            run_id = first.headers["location"].rpartition("/")[2]
            assert first.headers[HEADER] == again.headers[HEADER] == shard_of(run_id)
            says = {"interruptId": f"1:approval::{run_id}.1.0", "status": "cancelled"}
            resumed = await client.post("/agui", json={**body, "threadId": "x", "resume": [says]})
            assert ("RUN_ERROR" in resumed.text, resumed.headers[HEADER]) == (True, shard_of(run_id))
            found.add(shard_of(run_id))
    assert found == {"a", "b"}


async def test_a_session_of_the_page_is_good_for_runs_on_all_shards(shards, tmp_path):
    shards.add("a", "b", workers=False)
    async with door(shards, tmp_path) as client:
        ids = [await begun(client) for _ in range(2)]
        key = client.headers.pop("authorization").removeprefix("Bearer ")
        here = {"sec-fetch-site": "same-origin"}
        signed_in = await client.post("/sign-in", data={"key": key, "next": "/"}, headers=here)
        assert signed_in.status_code == 303
        for run_id in ids:
            assert (await client.get(f"/runs/{run_id}")).status_code == 200


async def test_D9_the_command_serves_all_shards_with_keys_that_are_good_on_each(shards, tmp_path):
    shards.add("a", "b", workers=False)
    variables = {name: said for name, said in shards.settings().as_environment().items() if said}
    terminal, another = Terminal(tmp_path, variables), Terminal(tmp_path, variables)
    made = await asyncio.to_thread(terminal.run, "keys", "add", "probe", "--json")
    key = json.loads(made.out)
    with terminal.start("serve", "--port", "0") as process:
        lines = await asyncio.to_thread(read_until, process, "Ready")
        assert sum("(shard " in line for line in lines) == 2
        url = next(line for line in lines if line.startswith("API:")).split()[1]
        async with httpx.AsyncClient(
            base_url=url, timeout=30, headers={"authorization": f"Bearer {key['key']}"}
        ) as client:
            assert {shard_of(await begun(client)) for _ in range(2)} == {"a", "b"}
            assert len((await client.get("/v1/runs")).json()["runs"]) == 2
            listed = await asyncio.to_thread(another.run, "keys", "list", "--json")
            assert [each["key_id"] for each in json.loads(listed.out)] == [key["key_id"]]
            shards.servers["b"].kill()
            refused = await asyncio.to_thread(another.run, "keys", "revoke", key["key_id"])
            assert "b cannot be asked" in refused.complaint()
            shards.servers["b"].start()
            shared = await asyncio.to_thread(another.run, "keys", "share")
            assert shared.out == "1 change: every shard has the same keys.\n"

            async def is_refused():
                return {(await client.get(f"/v1/runs/{name}~1")).status_code for name in "ab"} == {401}

            await until(is_refused)
        interrupted(process)
    terminal.until_nothing_is_left()


def test_without_shards_there_is_no_door_of_several(settings):
    with pytest.raises(InvalidSettings, match="TOOLFLEET_SHARDS"):
        create_sharded_app(settings)
