"""What a key of the scope `work` opens, and what it does not."""

from __future__ import annotations

import asyncio

import pytest

from tests.work.remote import Remote, calling, offered, spec
from toolfleet.calls import Returned
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.errors import UnknownTool


async def remote(api, *tools, name="laptop", **more):
    key, stored = await api.door.keyring.add(name, scopes=(Scope.WORK,), tools=tools, **more)
    return Remote(api.url, key, name), stored


async def test_X6_a_key_for_two_tools_cannot_announce_fetch_or_settle_a_third(api):
    narrow, _ = await remote(api, "a", "b")
    other, _ = await remote(api, "c", name="other")
    refused = await narrow.announce(spec("a"), spec("c"))
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:tool-not-allowed")
    assert (await narrow.say("poll", worker="laptop")).status_code == 412  # nothing of it was announced
    assert (await narrow.announce(spec("a"))).status_code == 200
    assert (await other.announce(spec("c"))).status_code == 200
    await offered(api, "c")
    call = calling(api, "c")
    assert await narrow.poll(wait_s=0.5) == []
    [offer] = await other.poll()
    assert (await narrow.say("ack", offer=offer["offer"])).status_code == 404
    attempt = await other.begin(offer)
    for what, said in (
        ("result", {"result": {"type": "returned", "content": "mine"}}),
        ("progress", {"fraction": 1}),
        ("checkpoint", {"data": 1}),
    ):
        assert (await narrow.say(what, attempt=attempt, **said)).status_code == 404
    beaten = await narrow.beat(attempt)
    assert (beaten.status_code, beaten.json()["positions"]) == (404, [0])
    assert (await narrow.say("release", worker="other", attempts=[attempt])).status_code == 404
    await other.returned(attempt)
    assert await call == Returned(content="done")
    await narrow.http.aclose()
    await other.http.aclose()


async def test_X6_a_worker_key_opens_nothing_else_and_no_other_key_opens_this(api):
    worker, _ = await remote(api, "a")
    for path in ("/v1/runs", "/v1/tools", "/v1/workers", "/v1/overview", "/metrics"):
        assert (await worker.http.get(path)).status_code == 403, path
    for scope in (Scope.READ, Scope.PAYLOADS, Scope.RUN, Scope.APPROVE):
        key, _ = await api.door.keyring.add(scopes=(scope,))
        caller = Remote(api.url, key)
        assert (await caller.announce(spec("a"))).status_code == 403
        await caller.http.aclose()
    for stranger in ("tf_guessed", "sk-of-another-system"):
        guessed = Remote(api.url, stranger)
        assert (await guessed.announce(spec("a"))).status_code == 401
        await guessed.http.aclose()
    await worker.http.aclose()


async def test_X6_a_revoked_key_ends_a_poll_that_hangs_and_is_handed_nothing(api):
    worker, stored = await remote(api, "a")
    await worker.announce(spec("a"))
    await offered(api, "a")
    hanging = asyncio.create_task(worker.say("poll", worker="laptop", wait_s=30))
    await asyncio.sleep(0.1)  # it waits by now, or will find the key gone
    await api.door.keyring.revoke(stored.key_id)
    call = calling(api, "a")
    async with asyncio.timeout(10):
        answer = await hanging
    assert (answer.status_code, "calls" in answer.json()) == (401, False)
    another, _ = await remote(api, "a", name="another")
    await another.announce(spec("a"))
    [offer] = await another.poll()
    assert offer["call"]["attempt"] == 1
    await another.returned(await another.begin(offer))
    assert await call == Returned(content="done")
    await worker.http.aclose()
    await another.http.aclose()


async def test_X6_a_tool_of_others_cannot_be_taken_over_under_its_name(api):
    first, _ = await remote(api, "a")
    second, _ = await remote(api, "a", name="second")
    await first.announce(spec("a"), sources={"a": "theirs:a"})
    clash = await second.announce(spec("a", description="Another."), sources={"a": "mine:a"})
    assert (clash.status_code, clash.json()["type"]) == (409, "urn:toolfleet:problem:tool-clash")
    assert "laptop@work." in clash.json()["detail"]
    await first.http.aclose()
    await second.http.aclose()


async def test_X6_the_worker_of_a_tenant_has_that_tenants_calls_and_is_offered_to_nobody_else(api):
    worker, _ = await remote(api, "a", tenant="acme")
    await worker.announce(spec("a"))
    await offered(api, "a")
    with pytest.raises(UnknownTool):
        await api.door.orchestrator.call("a", {}, tenant="globex")
    for tenant, names in (("globex", []), ("acme", ["a"])):
        key, _ = await api.door.keyring.add(tenant=tenant)
        listed = await api.stranger.get("/v1/tools", headers={"authorization": f"Bearer {key}"})
        assert [tool["name"] for tool in listed.json()["tools"]] == names
    own = asyncio.create_task(api.door.orchestrator.call("a", {}, tenant="acme", patience_s=20))
    [offer] = await worker.poll()
    assert offer["call"]["tenant"] == "acme"
    await worker.returned(await worker.begin(offer))
    assert await own == Returned(content="done")
    await worker.http.aclose()
