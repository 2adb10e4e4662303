"""Keys: who comes in, what they see, how often they may ask."""

import asyncio
import time

import httpx
import pytest

from tests.http.fleet_of_doors import api_of, rehearsed_api
from toolfleet.keys import REVOKED
from toolfleet.local.local_key import PREFIX
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope, digest_of
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.revocations import Revocations
from toolfleet.settings import Settings
from toolfleet.wire import Seal


@pytest.fixture
async def api(settings):
    """An API of its own: a key that exists changes who may come in."""
    async with rehearsed_api(settings) as running:
        yield running


async def bearer(api, **allowed):
    key, _ = await api.door.keyring.add(**allowed)
    return {"authorization": f"Bearer {key}"}


async def status(api, path, **options):
    return (await api.client.get(path, **options)).status_code


async def test_nobody_is_served_without_a_key_even_while_there_is_none(api):
    ask = api.stranger.get
    for said in ({}, {"authorization": "Bearer sk-of-another-system"}, {"authorization": "Bearer tf_guessed"}):
        refused = await ask("/v1/runs", headers=said)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "toolfleet keys local" in (await ask("/v1/runs")).json()["detail"]
    assert (await ask("/healthz")).status_code == 200
    assert await status(api, "/v1/runs") == 200


async def test_a_server_stays_closed_when_its_last_key_is_revoked_or_lost(api, monkeypatch):
    monkeypatch.setattr("toolfleet.orchestrator.doors.http.key_store.KNOWN_FOR_S", 0.0)
    known = await bearer(api)
    assert (await api.stranger.get("/v1/runs", headers=known)).status_code == 200
    [key] = await api.door.keyring.all()
    assert await api.door.keyring.revoke(key.key_id[:6]) == key
    lost = await bearer(api)
    await api.door.client.delete(api.door.settings.keys.api_keys())
    for gone in ({}, known, lost):
        assert (await api.stranger.get("/metrics", headers=gone)).status_code == 401
        assert (await api.stranger.post("/v1/runs", json={"question": "?"}, headers=gone)).status_code == 401


async def test_a_revoked_key_does_not_come_back_when_its_record_is_put_back(api, monkeypatch):
    monkeypatch.setattr("toolfleet.orchestrator.doors.http.key_store.KNOWN_FOR_S", 0.0)
    redis, where = api.door.client, api.door.settings.keys.api_keys()
    elsewhere = Keyring(redis, api.door.settings, api.door.seal)  # `toolfleet keys` is another process
    (key, stored), (another, _) = await elsewhere.add("leaver", scopes=(Scope.ADMIN,)), await elsewhere.add("stays")
    leaver, stays = {"authorization": f"Bearer {key}"}, {"authorization": f"Bearer {another}"}
    before = await redis.hgetall(where)
    assert (await api.stranger.get("/v1/runs", headers=leaver)).status_code == 200
    assert await elsewhere.revoke(stored.key_id) == stored
    await redis.hset(where, mapping=before)
    fresh = Keyring(redis, api.door.settings, api.door.seal)
    assert await fresh.find(key) is None
    assert [each.name for each in await fresh.all()] == ["stays"]
    assert (await api.stranger.get("/v1/runs", headers=leaver)).status_code == 401
    for forged in (None, b"junk", before[digest_of(key).encode()]):
        await redis.delete(where)
        await redis.hset(where, mapping={**before, **({REVOKED: forged} if forged else {})})
        assert (await api.stranger.get("/v1/runs", headers=leaver)).status_code == 401
        assert (await api.stranger.get("/v1/runs", headers=stays)).status_code == 200
    # Whoever remembers more than is stored writes it down again with the next key.
    await api.door.keyring.add("newcomer")
    assert await Keyring(redis, api.door.settings, api.door.seal).find(key) is None


async def test_keys_that_are_revoked_at_once_are_all_remembered(api):
    redis, where = api.door.client, api.door.settings.keys.api_keys()
    rings = [Keyring(redis, api.door.settings, api.door.seal) for _ in range(8)]
    made = [await ring.add() for ring in rings]
    before = await redis.hgetall(where)
    await asyncio.gather(*(ring.revoke(stored.key_id) for ring, (_, stored) in zip(rings, made, strict=True)))
    await redis.hset(where, mapping=before)
    assert await Keyring(redis, api.door.settings, api.door.seal).is_empty()


def test_revocations_of_keys_that_expired_long_ago_are_dropped():
    now = time.time()
    known = Revocations(expires_unix_s={"never": None, "later": now + 1, "lately": now - 60, "old": now - 2 * 86_400})
    assert set(known.with_all_of(Revocations()).expires_unix_s) == {"never", "later", "lately"}


async def test_the_key_of_this_machines_user_is_good_for_as_long_as_its_file(api):
    assert api.local_key.path.stat().st_mode & 0o777 == 0o600
    assert await status(api, "/metrics") == 200
    api.local_key.path.chmod(0o644)
    assert await status(api, "/metrics") == 401
    api.local_key.path.unlink()
    assert await status(api, "/metrics") == 401
    renewed = {"authorization": f"Bearer {api.local_key.made()}"}
    assert await status(api, "/metrics") == 401
    assert await status(api, "/metrics", headers=renewed) == 200


async def test_once_there_is_a_key_every_request_needs_one(api):
    await bearer(api)
    refused = await api.stranger.get("/v1/runs")
    assert (refused.status_code, refused.json()["status"]) == (401, 401)


async def test_a_key_is_stored_as_a_digest_and_believed_only_if_the_fleet_wrote_it(api):
    keys = api.door.settings.keys
    key, stored = await api.door.keyring.add("ci")
    found = await api.door.client.hgetall(keys.api_keys())
    assert key.startswith(PREFIX)
    assert list(found) == [digest_of(key).encode()]
    assert key.encode() not in b"".join(found.values())
    forged = found[digest_of(key).encode()]
    await api.door.client.hset(keys.api_keys(), digest_of("tf_mine"), forged)
    await api.door.client.hset(keys.api_keys(), digest_of("tf_text"), b'{"scopes": ["admin"]}')
    for made_up in ("tf_mine", "tf_text"):
        assert await status(api, "/v1/runs", headers={"authorization": f"Bearer {made_up}"}) == 401
    assert await api.door.keyring.all() == [stored]


async def test_a_stored_key_that_names_no_subject_asks_for_itself(api):
    key, stored = await api.door.keyring.add("older")
    without = stored.model_copy(update={"subject": ""})
    sealed = api.door.seal.close_api_key(without.model_dump_json().encode(), digest_of(key))
    await api.door.client.hset(api.door.settings.keys.api_keys(), digest_of(key), sealed)
    found = await api.door.keyring.find(key)
    assert found is not None
    assert (found.subject, await api.door.keyring.all()) == (stored.key_id, [stored])


async def test_scopes_say_what_may_be_done(api):
    read = await bearer(api, scopes=(Scope.READ,))
    assert await status(api, "/v1/runs", headers=read) == 200
    refused = await api.client.post("/v1/runs", json={"question": "?"}, headers=read)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:scope-missing")
    assert await status(api, "/metrics", headers=await bearer(api)) == 403
    approver = await bearer(api, scopes=(Scope.APPROVE,))
    assert await status(api, "/v1/runs", headers=approver) == 200
    assert (await api.client.post("/v1/runs", json={"question": "?"}, headers=approver)).status_code == 403
    assert await status(api, "/metrics", headers=await bearer(api, scopes=(Scope.ADMIN,))) == 200


async def test_an_expired_key_is_none(api):
    soon = await bearer(api, expires_unix_s=time.time() + 0.2)
    await bearer(api)
    assert await status(api, "/v1/runs", headers=soon) == 200
    await asyncio.sleep(0.25)
    assert await status(api, "/v1/runs", headers=soon) == 401


async def test_a_rate_is_kept_and_says_when_to_come_back(api):
    slow = await bearer(api, rate_per_s=2)
    answers = [await api.client.get("/v1/runs", headers=slow) for _ in range(4)]
    assert [answer.status_code for answer in answers][:2] == [200, 200]
    limited = next(answer for answer in answers if answer.status_code == 429)
    assert limited.headers["retry-after"] == "1"
    [bucket] = [key async for key in api.door.client.scan_iter(api.door.settings.keys.rate("*"))]
    assert 0 < await api.door.client.ttl(bucket) <= 3


async def test_runs_are_seen_by_their_tenant_only(api):
    all_but_admin = (Scope.RUN, Scope.APPROVE)
    ours, theirs, nobodys = [
        await bearer(api, tenant=tenant, scopes=all_but_admin) for tenant in ("ours", "theirs", "")
    ]
    asked = {"question": "?", "model": "nobody-has-this"}
    run_id = (await api.client.post("/v1/runs", json=asked, headers=ours)).json()["run_id"]
    for stranger in (theirs, nobodys):
        assert (await api.client.get("/v1/runs", headers=stranger)).json()["runs"] == []
        foreign = await api.client.get(f"/v1/runs/{run_id}", headers=stranger)
        unknown = await api.client.get("/v1/runs/0000000000000000", headers=stranger)
        assert foreign.json()["detail"].replace(run_id, "0000000000000000") == unknown.json()["detail"]
        for method, path, body in [
            ("GET", "/events", None),
            ("GET", "/calls", None),
            ("POST", "/cancel", {}),
            ("POST", "/messages", {"question": "?"}),
            ("POST", "/approvals", {"call_id": f"{run_id}.1.0", "granted": True}),
            ("DELETE", "", None),
        ]:
            answer = await api.client.request(method, f"/v1/runs/{run_id}{path}", json=body, headers=stranger)
            assert answer.status_code == 404, (method, path)
        assert (await api.client.get(f"/v1/responses/resp_{run_id}", headers=stranger)).status_code == 404
    [listed] = (await api.client.get("/v1/runs", headers=ours)).json()["runs"]
    assert listed["run_id"] == run_id
    assert (await api.client.delete(f"/v1/runs/{run_id}", headers=ours)).status_code == 204
    assert (await api.client.get("/v1/runs", headers=ours)).json()["runs"] == []


async def test_whose_a_run_is_cannot_be_changed_in_its_head(http_fleet, model):
    async with api_of(http_fleet.settings, model) as api:
        try:
            scopes = (Scope.RUN, Scope.APPROVE)
            ours, theirs = [await bearer(api, tenant=tenant, scopes=scopes) for tenant in ("ours", "evil")]
            asked = {"question": 'call pay {"amount": 5}'}
            run_id = (await api.client.post("/v1/runs", json=asked, headers=ours)).json()["run_id"]
            seen = await api.events(run_id, most=3, **ours)
            call_id = seen[-1][2]["awaiting_approval"][0]
            redis, keys = api.door.client, api.door.settings.keys
            await redis.zadd(keys.runs_of("evil"), {run_id: 1})
            decided = {"call_id": call_id, "granted": True}
            for forged in (
                b"evil",
                Seal(Settings(secret="the secret of another fleet")).close_kept(b"evil", keys.head(run_id)),
                b"",
            ):
                await redis.hset(keys.head(run_id), "tenant", forged)
                for method, path, body in [
                    ("POST", "/approvals", decided),
                    ("GET", "", None),
                    ("GET", "/calls", None),
                    ("GET", "/events", None),
                    ("POST", "/cancel", {}),
                    ("POST", "/messages", {"question": "?"}),
                    ("DELETE", "", None),
                ]:
                    answer = await api.client.request(method, f"/v1/runs/{run_id}{path}", json=body, headers=theirs)
                    assert answer.status_code == 404, (method, path, answer.text)
                said = {"model": model.name, "input": "?", "previous_response_id": f"resp_{run_id}"}
                assert (await api.client.post("/v1/responses", json=said, headers=theirs)).status_code == 404
                assert (await api.client.get("/v1/runs", headers=theirs)).json()["runs"] == []
                [listed] = (await api.client.get("/v1/runs", headers=ours)).json()["runs"]
                assert listed["run_id"] == run_id
            approved = await api.client.post(f"/v1/runs/{run_id}/approvals", json=decided, headers=ours)
            assert approved.status_code == 200
            assert (await api.events(run_id, **ours))[-1][2]["message"]["content"].endswith("pay: paid 5")
            assert (await api.client.delete(f"/v1/runs/{run_id}", headers=ours)).status_code == 204
        finally:
            for key in await api.door.keyring.all():
                await api.door.keyring.revoke(key.key_id)


async def test_handles_and_idempotency_keys_belong_to_a_tenant_and_tools_to_a_key(http_fleet, tmp_path):
    settings: Settings = http_fleet.settings.model_copy()
    async with api_of(settings, options=ApiOptions()) as api:
        try:
            ours, theirs = await bearer(api, tenant="ours"), await bearer(api, tenant="theirs", tools=("ec*",))
            asked = {"arguments": {"seconds": 60}, "patience_s": 0}
            url = (await api.client.post("/v1/tools/wait/call", json=asked, headers=ours)).json()["url"]
            assert (await api.client.get(url, headers=theirs)).status_code == 404
            assert (await api.client.post(f"{url}/cancel", headers=theirs)).status_code == 404
            assert (await api.client.post(f"{url}/cancel", headers=ours)).json()["state"] == "cancelled"
            refused = await api.client.post("/v1/tools/wait/call", json=asked, headers=theirs)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:tool-not-allowed")
            offered = (await api.client.get("/v1/tools", headers=theirs)).json()["tools"]
            assert [tool["name"] for tool in offered] == ["echo"]
            asked = {"question": "?", "model": "nobody", "tools": ["add"]}
            assert (await api.client.post("/v1/runs", json=asked, headers=theirs)).status_code == 403
            asked = {"question": "?", "model": "nobody"}
            run = await api.client.post("/v1/runs", json=asked, headers=theirs)
            assert (await api.client.get(run.json()["url"], headers=theirs)).json()["terms"]["tools"] == ["echo"]
            same = {"idempotency-key": str(tmp_path)}
            ids = [
                (await api.client.post("/v1/runs", json=asked, headers={**who, **same})).json()["run_id"]
                for who in (ours, theirs)
            ]
            assert ids[0] != ids[1]
        finally:
            for key in await api.door.keyring.all():
                await api.door.keyring.revoke(key.key_id)


async def test_only_a_server_that_was_told_to_be_open_serves_whoever_comes(settings):
    async with api_of(settings, options=ApiOptions(is_insecure=True)) as api:
        assert (await api.stranger.get("/v1/runs")).status_code == 200
    async with api_of(settings) as api:
        assert (await api.stranger.get("/v1/runs", headers={"host": "localhost"})).status_code == 401


@pytest.mark.parametrize(
    "said",
    [
        {"host": "rebound.example"},
        {"host": "rebound.example:8000"},
        {"host": "127.0.0.1.rebound.example"},
        {"origin": "https://page.example"},
        {"origin": "null"},
        {"host": "[::1"},
    ],
    ids=lambda said: next(iter(said.values())),
)
async def test_an_open_server_on_loopback_is_not_opened_to_web_pages(settings, said):
    async with api_of(settings, options=ApiOptions(is_insecure=True)) as api:
        for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/metrics"), ("POST", "/mcp")):
            refused = await api.stranger.request(method, path, headers=said)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:not-from-here"), path
        assert await status(api, "/v1/runs", headers=said) == 200  # with a key


async def test_an_open_server_serves_this_machine_and_elsewhere_whoever_comes(settings):
    async with api_of(settings, options=ApiOptions(is_insecure=True)) as api:
        for said in ({"host": "localhost:1"}, {"host": "[::1]:1"}, {"origin": "http://localhost:3000"}):
            assert (await api.stranger.get("/v1/runs", headers=said)).status_code == 200, said
        elsewhere = httpx.ASGITransport(api.app)
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://192.0.2.1") as client:
            said = {"host": "fleet.example", "origin": "https://page.example"}
            assert (await client.get("/v1/runs", headers=said)).status_code == 200
