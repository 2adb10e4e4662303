"""What is wrong with a request, as OpenAI's clients read it: status, field and id; and what a request is called."""

import json
import re

import httpx
import openai
import pytest

from tests.http.fleet_of_doors import api_of
from toolfleet.orchestrator.models import REHEARSAL_MODEL

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "?"}


def calling(*ids):
    calls = [{"id": each, "type": "function", "function": {"name": "lookup", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answering(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": "4 EUR"}


BROKEN = {
    "an answer to nothing": ([USER, answering("call_a")], "call_a", "messages[1].tool_call_id"),
    "an answer to another call": ([calling("call_a"), answering("call_b")], "call_b", "messages[1].tool_call_id"),
    "an answer behind another turn": (
        [calling("call_a"), answering("call_a"), USER, answering("call_a")],
        "call_a",
        "messages[3].tool_call_id",
    ),
    "no answer": ([USER, calling("call_a", "call_b"), answering("call_b")], "call_a", "messages[1].tool_calls"),
    "no answer before the next word": ([calling("call_a"), USER], "call_a", "messages[0].tool_calls"),
    "an id that stands twice": ([calling("call_a", "call_a")], "call_a", "messages[0].tool_calls[1].id"),
    "an answer given twice": (
        [calling("call_a"), answering("call_a"), answering("call_a")],
        "call_a",
        "messages[2].tool_call_id",
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("what", BROKEN)
async def test_a_conversation_that_cannot_have_happened_is_refused_by_the_id_that_is_wrong(api, what, stream):
    messages, call_id, param = BROKEN[what]
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read()) as client:
        with pytest.raises(openai.BadRequestError, match=call_id) as refused:
            await client.chat.completions.create(model=REHEARSAL_MODEL, messages=messages, stream=stream)
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


async def test_calls_of_several_turns_may_have_the_same_id(api):
    messages = [USER, calling("call_0"), answering("call_0"), calling("call_0"), answering("call_0"), USER]
    answer = await api.client.post(PATH, json={"model": REHEARSAL_MODEL, "messages": messages})
    assert answer.status_code == 200, answer.text


MALFORMED = [
    (PATH, {"model": REHEARSAL_MODEL}, "messages"),
    (PATH, {"model": REHEARSAL_MODEL, "messages": []}, "messages"),
    (PATH, {"model": REHEARSAL_MODEL, "messages": [{"role": "nobody", "content": "?"}]}, "messages[0].role"),
    (PATH, {"model": REHEARSAL_MODEL, "messages": [USER], "toolfleet": {"limits": {"calls": "x"}}}, "toolfleet.limits"),
    ("/v1/responses", {"model": REHEARSAL_MODEL}, "input"),
]


@pytest.mark.parametrize(("path", "body", "param"), MALFORMED)
async def test_a_malformed_request_is_400_and_names_the_field(api, path, body, param):
    refused = await api.client.post(path, json=body)
    error = refused.json()["error"]
    assert refused.status_code == refused.json()["status"] == 400
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"].startswith(param)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request")
    assert param.split("[")[0].split(".")[0] in error["message"]


async def test_what_is_no_json_is_400_too(api):
    for body in (b"{", b"[]", b"\xff"):
        refused = await api.client.post(PATH, content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_the_other_doors_say_422_as_before(api):
    assert (await api.client.post("/v1/runs", json={"question": 1})).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/v1/runs", 200),
        ("GET", "/v1/runs/nobody", 404),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/runs", 405),
        ("POST", PATH, 400),
    ],
)
async def test_every_answer_says_what_its_request_is_called(api, method, path, status):
    answers = [await api.client.request(method, path) for _ in range(2)]
    names = {answer.headers["x-request-id"] for answer in answers}
    assert {answer.status_code for answer in answers} == {status}
    assert len(names) == 2
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", name) for name in names)


async def test_refusals_before_any_route_have_a_name_too(api):
    refused = await api.stranger.get("/v1/runs")
    assert (refused.status_code, refused.headers["x-request-id"][:4]) == (401, "req_")
    large = await api.client.post(PATH, content=b"x" * (5 * 1024 * 1024))
    assert (large.status_code, large.headers["x-request-id"][:4]) == (413, "req_")


@pytest.mark.parametrize("header", ["x-request-id", "x-client-request-id"])
async def test_a_callers_own_name_for_its_request_is_kept_where_it_does_no_harm(api, header):
    kept = await api.client.get("/v1/models", headers={header: "trace-1:2/3"})
    assert kept.headers["x-request-id"] == "trace-1:2/3"
    for harmful in ("two words", "<script>", "x" * 129, "'; drop", "", "ä".encode()):
        named = await api.client.get("/v1/models", headers={header: harmful})
        assert named.headers["x-request-id"].startswith("req_"), harmful


async def test_the_official_client_finds_the_name_in_answers_and_errors(api):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read()) as client:
        completion = await client.chat.completions.create(model=REHEARSAL_MODEL, messages=[USER])
        assert completion._request_id.startswith("req_")
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="gpt-9", messages=[USER])
        assert missing.value.request_id.startswith("req_")


async def test_a_mistake_of_the_servers_is_found_in_its_log_by_the_requests_name(settings, monkeypatch, caplog):
    async def breaks(*_, **__):
        raise ZeroDivisionError

    async with api_of(settings) as api:
        monkeypatch.setattr(type(api.door.looking.pages), "page", breaks)
        async with httpx.AsyncClient(base_url=api.url, headers=api.client.headers) as client:
            failed = await client.get("/v1/runs")
    name = failed.headers["x-request-id"]
    assert (failed.status_code, failed.headers["x-should-retry"]) == (500, "false")
    assert name in json.dumps(failed.json())
    assert f"request_id={name!r}" in caplog.text
