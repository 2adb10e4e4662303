"""What somebody may not do with a key that is narrower than what they want: asked of a `toolfleet serve` of its own."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import aclosing

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.http.serving import Served, serving
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.wire import Seal

PAY = 'call pay {"amount": 5}'
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attacker", "version": "1"}}
ACCEPTS = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served(http_fleet, tmp_path_factory):
    with serving(http_fleet.settings, tmp_path_factory.mktemp("serve")) as running:
        yield running


@pytest.fixture
async def keys(http_fleet):
    """Makes keys, and takes them back."""
    made = []
    async with aclosing(connect_async(http_fleet.settings)) as client:
        keyring = Keyring(client, http_fleet.settings, Seal(http_fleet.settings))

        async def make(**allowed):
            key, stored = await keyring.add(**allowed)
            made.append(stored)
            return {"authorization": f"Bearer {key}"}

        yield make
        for each in made:
            await keyring.revoke(each.key_id)


@pytest.fixture
async def ask(served: Served):
    async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:
        yield client


async def waiting_call(ask, key):
    """A run of somebody who may do all, at its payment that a person must allow."""
    run_id = (await ask.post("/v1/runs", json={"question": PAY}, headers=key)).json()["run_id"]
    async with asyncio.timeout(30):
        while True:
            calls = (await ask.get(f"/v1/runs/{run_id}/calls", headers=key)).json()["calls"]
            if calls and calls[0]["state"] == "awaiting_approval":
                return run_id, calls[0]["call_id"]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ({"scopes": (Scope.RUN,)}, "scope-missing"),
        ({"scopes": (Scope.READ,)}, "scope-missing"),
        ({"scopes": (Scope.APPROVE,), "tools": ("echo",)}, "tool-not-allowed"),
        ({"scopes": (Scope.RUN, Scope.APPROVE), "tools": ("pa",)}, "tool-not-allowed"),
    ],
    ids=["run", "read", "approve_another_tool", "almost_this_tool"],
)
@pytest.mark.parametrize("arguments", [None, {"amount": 1_000_000}])
async def test_a_narrow_key_approves_nothing_that_it_does_not_include(ask, keys, allowed, code, arguments):
    owner = await keys(tenant="acme", scopes=(Scope.RUN, Scope.APPROVE))
    run_id, call_id = await waiting_call(ask, owner)
    attacker = await keys(tenant="acme", **allowed)
    decided = {"call_id": call_id, "granted": True, "arguments": arguments}
    answer = await ask.post(f"/v1/runs/{run_id}/approvals", json=decided, headers=attacker)
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:toolfleet:problem:{code}")
    [call] = (await ask.get(f"/v1/runs/{run_id}/calls", headers=owner)).json()["calls"]
    assert call["state"] == "awaiting_approval"


@pytest.mark.parametrize(
    "edited", [{"amount": "all of it"}, {"amount": 5, "to": "mallory"}, {}], ids=["type", "unknown", "missing"]
)
async def test_edited_arguments_are_checked_against_the_tools_schema_before_anything_runs(ask, keys, edited):
    owner = await keys(tenant="acme", scopes=(Scope.RUN, Scope.APPROVE))
    run_id, call_id = await waiting_call(ask, owner)
    decide = f"/v1/runs/{run_id}/approvals"
    refused = await ask.post(decide, json={"call_id": call_id, "granted": True, "arguments": edited}, headers=owner)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:toolfleet:problem:bad-arguments")
    approver = await keys(tenant="acme", scopes=(Scope.APPROVE,), tools=("pay",))
    right = {"call_id": call_id, "granted": True, "arguments": {"amount": 4}}
    assert (await ask.post(decide, json=right, headers=approver)).status_code == 200


async def test_calling_by_hand_is_no_way_round_a_persons_approval(ask, keys):
    runner, narrow = await keys(scopes=(Scope.RUN,)), await keys(scopes=(Scope.RUN,), tools=("pay",))
    for key in (runner, narrow):
        refused = await ask.post("/v1/tools/pay/call", json={"arguments": {"amount": 5}}, headers=key)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:scope-missing")
        async with (
            httpx2.AsyncClient(headers=key) as http,
            Client(streamable_http_client(f"{ask.base_url}/mcp", http_client=http)) as client,
        ):
            result = await client.call_tool("pay", {"amount": 5})
            assert result.is_error
            assert "needs approval" in result.content[0].text
    both = await keys(scopes=(Scope.RUN, Scope.APPROVE))
    assert (await ask.post("/v1/tools/pay/call", json={"arguments": {"amount": 5}}, headers=both)).is_success


@pytest.mark.parametrize(
    "allowed",
    [
        {"scopes": (Scope.READ,)},
        {"scopes": (Scope.RUN,), "tools": ("add",)},
        {"scopes": (Scope.RUN,), "tools": ("[e]cho",)},
    ],
    ids=["read", "another_tool", "a_pattern_in_doubt"],
)
async def test_a_replay_tells_a_narrower_key_nothing(ask, keys, allowed):
    owner = await keys(tenant="acme", subject="ada")
    asked = {"json": {"arguments": {"value": "the secret"}}}
    same = {"idempotency-key": secrets.token_hex(8)}
    assert (await ask.post("/v1/tools/echo/call", headers=owner | same, **asked)).status_code == 200
    attacker = await keys(tenant="acme", subject="ada", **allowed)
    answer = await ask.post("/v1/tools/echo/call", headers=attacker | same, **asked)
    assert answer.status_code == 403
    assert "the secret" not in answer.text
    another = await keys(tenant="acme", subject="ada")
    replayed = await ask.post("/v1/tools/echo/call", headers=another | same, **asked)
    assert replayed.headers["idempotency-replayed"] == "true"


async def test_what_one_subject_was_answered_is_told_to_no_other_of_its_tenant(ask, keys):
    ada, bob = await keys(tenant="acme", subject="ada"), await keys(tenant="acme", subject="bob")
    same = {"idempotency-key": secrets.token_hex(8)}
    told = [await ask.post("/v1/tools/who_asks/call", json={}, headers=who | same) for who in (ada, bob, ada)]
    assert [json.loads(answer.json()["content"])["subject"] for answer in told] == ["ada", "bob", "ada"]
    assert ["idempotency-replayed" in answer.headers for answer in told] == [False, False, True]
    asked = {"question": "?", "model": "nobody-has-this"}
    ids = [(await ask.post("/v1/runs", json=asked, headers=who | same)).json().get("run_id") for who in (ada, bob)]
    assert ids == [None, None]  # the same key for something else
    other = {"idempotency-key": secrets.token_hex(8)}
    ids = [(await ask.post("/v1/runs", json=asked, headers=who | other)).json()["run_id"] for who in (ada, bob)]
    assert ids[0] != ids[1]
    for run_id, who in zip(ids, (ada, bob), strict=True):
        assert (await ask.delete(f"/v1/runs/{run_id}", headers=who)).status_code == 204


async def test_a_session_of_mcp_is_no_other_keys(ask, keys):
    owner, other = await keys(tenant="acme", subject="ada"), await keys(tenant="acme", subject="ada")
    begun = await ask.post("/mcp", json={**HELLO, "params": ABOUT}, headers=owner | ACCEPTS)
    session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for stranger in (other, {"authorization": f"Bearer {await _local(ask)}"}):
        for method, body in (("POST", listing), ("DELETE", None), ("GET", None)):
            answer = await ask.request(method, "/mcp", json=body, headers=stranger | session | ACCEPTS)
            assert answer.status_code in {401, 404}, (method, answer.text)
    assert (await ask.post("/mcp", json=listing, headers=owner | session | ACCEPTS)).status_code == 200


async def _local(ask):
    return "tf_" + secrets.token_urlsafe(32)


@pytest.mark.parametrize("path", ["/v1/handles/complete", "/v1/handles//complete", "/v1/handles/x/y/complete"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_no_path_that_looks_like_a_callback_is_open(ask, path, method):
    assert (await ask.request(method, path)).status_code in {401, 403}


@pytest.mark.parametrize(
    "query",
    ["", "expires=1&signature=x", "expires=²&signature=x", "expires=99999999999999999999&signature=", "signature=%ff"],
)
async def test_a_callback_that_nobody_signed_is_refused_before_its_body_is_taken(ask, query):
    host, port = ask.base_url.host, ask.base_url.port
    reader, writer = await asyncio.open_connection(host, port)
    target = f"/v1/handles/r.1.0/complete?{query}"
    writer.write(f"POST {target} HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n".encode())
    status = await asyncio.wait_for(reader.readline(), 10)  # though nothing of the body was sent
    writer.close()
    assert status.split()[1] in {b"403", b"400"}


async def test_the_page_of_the_api_loads_nothing_and_runs_nothing(ask):
    page = await ask.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for outside in ("<script", "<link", "src=", "@import", "url("):
        assert outside not in page.text
    for path in (await ask.get("/openapi.json")).json()["paths"]:
        assert path in page.text


def test_who_has_the_key_of_this_machine_is_its_user_and_nobody_else(served):
    key = served.folder / "data" / "toolfleet" / "api.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert httpx.get(f"{served.url}/metrics").status_code == 401
    assert httpx.get(f"{served.url}/metrics", headers=served.local_key).status_code == 200
    assert json.loads(httpx.get(f"{served.url}/healthz").text)["status"] == "ok"
