"""Single calls, handles and callbacks over HTTP."""

import asyncio

import pytest
from pydantic import SecretStr
from stages import stage_of_its_own

from tests.http.fleet_of_doors import api_of
from toolfleet.callbacks import callbacks
from toolfleet.orchestrator.status.sealed_before import sealed_before
from toolfleet.settings import new_secret


async def test_a_tool_is_listed_and_called(api):
    tools = {tool["name"]: tool for tool in (await api.client.get("/v1/tools")).json()["tools"]}
    assert tools["add"]["input_schema"]["required"] == ["a", "b"]
    answer = await api.client.post("/v1/tools/add/call", json={"arguments": {"a": 2, "b": 3}})
    assert (answer.status_code, answer.json()["content"]) == (200, "5")


async def test_a_failing_call_is_an_answer_and_an_unknown_tool_is_a_problem(api):
    failed = await api.client.post("/v1/tools/add/call", json={"arguments": {"a": "x"}})
    assert (failed.status_code, failed.json()["kind"]) == (200, "bad_arguments")
    unknown = await api.client.post("/v1/tools/nope/call", json={})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:toolfleet:problem:unknown-tool")
    bare = await api.client.post("/v1/tools/nothing/call")
    assert (bare.status_code, bare.json()["type"]) == (200, "returned")


async def test_a_slow_call_becomes_a_handle_that_is_waited_for(api):
    answer = await api.client.post("/v1/tools/wait/call", json={"arguments": {"seconds": 0.5}, "patience_s": 0})
    assert answer.status_code == 202
    url = answer.json()["url"]
    assert answer.headers["location"] == url
    assert int(answer.headers["retry-after"]) >= 1
    assert (await api.client.get(url)).json()["state"] in {"queued", "running"}
    ended = (await api.client.get(url, params={"wait": 20})).json()
    assert (ended["state"], ended["result"]["content"]) == ("succeeded", "waited 0.5")


async def test_a_handle_can_be_cancelled(api):
    answer = await api.client.post("/v1/tools/wait/call", json={"arguments": {"seconds": 60}, "patience_s": 0})
    ended = await api.client.post(answer.json()["url"] + "/cancel")
    assert ended.json()["state"] == "cancelled"
    assert (await api.client.post("/v1/handles/nope/cancel")).status_code == 404
    assert (await api.client.get("/v1/handles/nope")).status_code == 404
    assert (await api.client.get("/v1/handles/nope", params={"wait": "inf"})).status_code == 422


async def test_a_job_elsewhere_is_ended_by_its_signed_address_once(api):
    answer = await api.client.post("/v1/tools/elsewhere/call", json={"arguments": {"job": "j"}, "patience_s": 0})
    url = answer.json()["url"]
    async with asyncio.timeout(20):
        while (status := (await api.client.get(url)).json())["state"] != "submitted":  # no event says so
            await asyncio.sleep(0.02)
    path = callback(api, status["call_id"])
    done = {"type": "returned", "content": "42"}
    forged = await api.client.post(path.replace("signature=", "signature=0"), json=done)
    assert forged.status_code == 403
    later = await api.client.post(path.replace("expires=", "expires=1"), json=done)
    assert later.status_code == 403
    assert (await api.client.post(path, json={"type": "submitted"})).status_code == 422
    meddling = await api.client.post(path, json=done | {"state": {"paid": True}})
    assert (meddling.status_code, "callback_sets_state=True" in meddling.json()["detail"]) == (422, True)
    assert (await api.client.post(path, json=done)).json()["status"] == "completed"
    assert (await api.client.post(path, json=done)).status_code == 409
    ended = (await api.client.get(url, params={"wait": 20})).json()
    assert (ended["state"], ended["result"]["content"]) == ("succeeded", "42")
    nobody = await api.client.post(callback(api, "nobody.1.0"), json=done)
    assert nobody.status_code == 404
    expired = await api.client.post(callback(api, "nobody.1.0", expires=1), json=done)
    assert expired.status_code == 410


def callback(api, call_id, expires=2**40):
    at = "https://fleet.example"
    address = callbacks(api.door.settings.model_copy(update={"public_url": at}), api.door.seal)(call_id, expires)
    return address.removeprefix(at)


# --- Idempotency-Key --------------------------------------------------------------------------------------------------


async def test_a_repeated_post_gets_the_first_ones_answer(api, tmp_path):
    asked = {"arguments": {"path": str(tmp_path / "effects")}}
    headers = {"idempotency-key": f"once-{tmp_path}"}
    first = await api.client.post("/v1/tools/write_line/call", json=asked, headers=headers)
    second = await api.client.post("/v1/tools/write_line/call", json=asked, headers=headers)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert len((tmp_path / "effects").read_text().splitlines()) == 1
    other = await api.client.post("/v1/tools/write_line/call", json={"arguments": {"path": "x"}}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "urn:toolfleet:problem:idempotency-key-reused")


async def test_a_repeat_of_a_post_under_way_is_told_so(api, tmp_path):
    async with stage_of_its_own() as stage:
        asked = {"arguments": {"stage": stage.path}, "patience_s": 20}
        headers = {"idempotency-key": f"busy-{tmp_path}"}
        first = asyncio.create_task(api.client.post("/v1/tools/play_once/call", json=asked, headers=headers))
        actor = await stage.enters()
        second = await api.client.post("/v1/tools/play_once/call", json=asked, headers=headers)
        assert (second.status_code, second.headers["retry-after"]) == (409, "1")
        actor.returns("done")
        assert (await first).json()["content"] == "done"


async def test_a_run_is_begun_once_for_one_key_streamed_or_not(api, tmp_path):
    headers = {"idempotency-key": f"run-{tmp_path}"}
    asked = {"question": 'call add {"a": 1, "b": 1}'}
    [first, second] = [(await api.client.post("/v1/runs", json=asked, headers=headers)).json() for _ in range(2)]
    assert first["run_id"] == second["run_id"]
    streamed = {**asked, "stream": True}
    headers = {"idempotency-key": f"streamed-{tmp_path}"}
    texts = [(await api.client.post("/v1/runs", json=streamed, headers=headers)).text for _ in range(2)]
    ids = [[line for line in text.splitlines() if line.startswith("id:")] for text in texts]
    assert ids[0] == ids[1]


async def test_what_failed_may_be_tried_again_with_the_same_key(api, tmp_path):
    headers = {"idempotency-key": f"again-{tmp_path}"}
    for _ in range(2):
        answer = await api.client.post("/v1/tools/nope/call", json={}, headers=headers)
        assert answer.status_code == 404
    for wrong in ("", "x" * 300):
        answer = await api.client.post("/v1/tools/add/call", json={}, headers={"idempotency-key": wrong})
        assert answer.status_code == 400


@pytest.mark.parametrize("how", ["made_up", "of_another_key", "altered"])
async def test_an_answer_that_the_fleet_did_not_seal_is_told_as_lost(api, tmp_path, how):
    names = [f"{how}-{each}-{tmp_path}" for each in ("this", "other")]
    asked = {"arguments": {"path": str(tmp_path / "effects")}}
    redis, pattern = api.door.client, api.door.settings.keys.idempotent("*")
    stored = []
    for name in names:
        before = {key async for key in redis.scan_iter(pattern)}
        told = await api.client.post("/v1/tools/write_line/call", json=asked, headers={"idempotency-key": name})
        assert told.status_code == 200
        stored += {key async for key in redis.scan_iter(pattern)} - before
    this, other = stored
    written = {
        "made_up": b"0" * 64 + (await redis.get(this))[64:],
        "of_another_key": await redis.get(other),
        "altered": (await redis.get(this)).replace(b"returned", b"replaced"),
    }[how]
    assert written != await redis.get(this)
    await redis.set(this, written)
    lost = await api.client.post("/v1/tools/write_line/call", json=asked, headers={"idempotency-key": names[0]})
    assert (lost.status_code, lost.json()["type"]) == (409, "urn:toolfleet:problem:answer-lost")
    assert len((tmp_path / "effects").read_text().splitlines()) == 2


async def test_answers_under_the_secret_before_are_told_and_counted(settings):
    old, new = settings.secret.get_secret_value(), new_secret()
    signing = settings.model_copy(update={"secret": SecretStr(new), "previous_secret": SecretStr(old)})
    asked = {"question": "?", "model": "nobody-has-this"}
    same = {"idempotency-key": "one"}
    answers = []
    for each in (settings, signing):
        async with api_of(each) as api:
            answers.append(await api.client.post("/v1/runs", json=asked, headers=same))
            if each is signing:
                assert (await sealed_before(api.door.client, each))["idempotent answers"] == 1
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["idempotency-replayed"] == "true"
