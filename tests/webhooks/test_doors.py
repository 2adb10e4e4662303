"""Webhooks over HTTP, on the page and with the command: added, shown once, tested, listed when given up, sent again."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.command import Terminal
from tests.http.fleet_of_doors import api_of
from tests.webhooks.receiver import Receiver, receiving
from tests.webhooks.test_delivery import nothing_owed, until
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.orchestrator.models import rehearsal_model
from toolfleet.wire import Seal


@pytest.fixture
async def api(settings):
    settings = settings.model_copy(update={"webhook_retry_s": "0.01"})
    async with api_of(settings, rehearsal_model()) as running:
        yield running


async def added(api, receiver, **asked):
    answer = await api.client.post("/v1/webhooks", json={"url": receiver.url, **asked})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_U11_over_http_an_endpoint_is_added_tested_rotated_and_its_dead_messages_are_sent_again(
    api, receiver, settings, client
):
    made = await added(api, receiver, events=["run.completed"], description="billing")
    path = f"/v1/webhooks/{made['endpoint_id']}"
    shown = (await api.client.get(path)).text + (await api.client.get("/v1/webhooks")).text
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in shown
    tried = (await api.client.post(f"{path}/test", json={})).json()
    assert (tried["status"], tried["error"]) == (204, "")
    assert receiver.got[-1].verified(made["secret"])["type"] == "webhook.test"
    rotated = (await api.client.post(f"{path}/rotate", json={"overlap_s": 60})).json()
    receiver.status, receiver.body = 500, b"<script>alert(1)</script>\x1b[2J"
    await asyncio.sleep(0.3)  # an orchestrator looks at endpoints now and then
    run_id = await api.begin("say hello")
    [dead] = await until(lambda: dead_of(api))
    assert (dead["about"], dead["attempts"], dead["error"]) == (run_id, 2, "it answered 500")
    [_, attempt] = (await api.client.get(path)).json()["attempts"]
    assert attempt["answer"].startswith("<script>")
    page = (await api.client.get("/webhooks", headers={"accept": "text/html"})).text
    assert receiver.url.partition("?")[0] in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert made["secret"] not in page
    receiver.status = 200
    again = await api.client.post(f"/v1/webhooks/dead/{dead['delivery_id']}/replay", json={})
    assert again.status_code == 200, again.text
    await until(lambda: nothing_owed(client, settings))
    assert receiver.got[-1].verified(made["secret"]) == receiver.got[-1].verified(rotated["secret"])
    assert (await api.client.delete(path)).status_code == 200
    assert (await api.client.get(path)).status_code == 404


async def dead_of(api):
    return (await api.client.get("/v1/webhooks/dead")).json()["dead"]


async def test_the_page_sends_again_what_was_given_up(api, settings, client):
    async with receiving(Receiver(status=404)) as receiver:
        await added(api, receiver)
        await asyncio.sleep(0.3)  # an orchestrator looks at endpoints now and then
        await api.begin("say hello")
        [dead] = await until(lambda: dead_of(api))
        assert "Send again" in (await api.client.get("/webhooks")).text
        receiver.status = 200
        sent = await api.client.post(f"/webhooks/dead/{dead['delivery_id']}/replay", headers={"origin": api.url})
        assert sent.status_code == 303, sent.text
        await until(lambda: nothing_owed(client, settings))
    assert await dead_of(api) == []


async def test_an_endpoint_is_its_tenants_and_needs_a_key_that_may_act(api, receiver, settings, client):
    keyring = Keyring(client, settings, Seal(settings))
    made = await added(api, receiver)
    stranger, _ = await keyring.add(tenant="other")
    reader, _ = await keyring.add(scopes=(Scope.READ,))
    payloads, _ = await keyring.add(scopes=(Scope.PAYLOADS,))
    path = f"/v1/webhooks/{made['endpoint_id']}"

    async def asked(key, method, path, **more):
        headers = {"authorization": f"Bearer {key}"}
        return (await api.stranger.request(method, path, headers=headers, **more)).status_code

    assert (await api.stranger.get("/v1/webhooks")).status_code == 401
    for method, where in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/rotate"), ("POST", "/enable")):
        body = {"json": {}} if method == "POST" else {}
        assert await asked(stranger, method, path + where, **body) == 404
        assert await asked(reader, method, path + where, **body) == 403
    assert await asked(payloads, "GET", path) == 200
    assert await asked(payloads, "DELETE", path) == 403
    assert await asked(payloads, "POST", "/v1/webhooks", json={"url": receiver.url}) == 403
    refused = await api.client.post("/v1/runs", json={"question": "?", "webhook": "we_" + "x" * 2000})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:toolfleet:problem:unknown-webhook")


async def test_no_answer_with_a_secret_is_kept_in_redis_for_a_repeat(api, receiver, client, settings):
    headers = {"idempotency-key": "once"}
    made = (await api.client.post("/v1/webhooks", json={"url": receiver.url}, headers=headers)).json()
    again = await api.client.post("/v1/webhooks", json={"url": receiver.url}, headers=headers)
    assert (again.status_code, again.json()["type"]) == (422, "urn:toolfleet:problem:invalid-webhook")
    secret = made["secret"].encode()
    for key in [key async for key in client.scan_iter(f"{settings.namespace}:*")]:
        assert secret not in await client.dump(key)


@pytest.mark.parametrize(
    "body",
    [
        {"url": "https://1.1.1.1/" + "x" * 100_000},
        {"url": 9007199254740993},
        {"url": "https://1.1.1.1/", "events": ["run.started"]},
        {"url": "https://1.1.1.1/", "events": ["webhook.test"]},
        {"url": "https://1.1.1.1/", "event": []},
        {"url": "https://a:b@1.1.1.1/"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {},
    ],
)
async def test_what_cannot_be_an_endpoint_is_refused_over_http(api, body):
    answer = await api.client.post("/v1/webhooks", json=body)
    assert answer.status_code == 422, answer.text
    assert len(answer.text) < 3000


async def test_U11_the_command_adds_tests_lists_and_sends_again(settings, receiver, tmp_path):
    settings = settings.model_copy(update={"webhook_retry_s": "0.01"})
    terminal = Terminal(tmp_path, settings.as_environment())

    async def typed(*words, code=0):
        ended = await asyncio.to_thread(terminal.run, "webhooks", *words)
        assert ended.code == code, ended
        return ended

    secret = (await typed("add", receiver.url, "--events", "run.completed,run.failed")).out.strip()
    async with api_of(settings, rehearsal_model()) as api:
        receiver.status, receiver.body = 500, b"\x1b[2Jboom"
        run_id = await api.begin("say hello")
        [dead] = await until(lambda: dead_of(api))
        assert run_id in (await typed("dead")).out
        refused = await typed("test", dead["endpoint_id"], code=1)
        assert "not delivered: it answered 500: \\x1b[2Jboom" in refused.err
        receiver.status = 204
        assert "1 message due again." in (await typed("replay", "--all")).out
        await receiver.wait_for(4)
    assert receiver.got[-1].id == dead["delivery_id"].partition(".")[0]
    receiver.got[-1].verified(secret)
