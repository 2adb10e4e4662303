"""Runs over HTTP, with real workers and the rehearsal model."""

import asyncio

import pytest

from tests.http.fleet_of_doors import api_of, read_events

ADD = 'call add {"a": 2, "b": 3}'


def kinds(events) -> list[str]:
    """Of what kinds they are; that calls were sent is told by itself where they are not back at once."""
    return [kind for _, kind, _ in events if kind != "calls_sent"]


async def test_a_run_is_begun_followed_and_looked_at(api):
    accepted = await api.client.post("/v1/runs", json={"question": ADD})
    assert accepted.status_code == 202
    run_id = accepted.json()["run_id"]
    assert accepted.headers["location"] == f"/v1/runs/{run_id}"
    events = await api.events(run_id)
    assert kinds(events) == ["run_started", "model_replied", "calls_back", "model_replied"]
    run = (await api.client.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["answer"].splitlines()[-1]) == ("done", "add: 5")
    listed = (await api.client.get("/v1/runs", params={"limit": 5, "state": "done"})).json()["runs"]
    assert run_id in [each["run_id"] for each in listed]
    [call] = (await api.client.get(f"/v1/runs/{run_id}/calls")).json()["calls"]
    assert (call["tool"], call["state"]) == ("add", "succeeded")


async def test_a_streamed_run_tells_its_text_as_it_comes_and_what_is_stored(api):
    async with api.client.stream("POST", "/v1/runs", json={"question": ADD, "stream": True}) as response:
        events = await read_events(response)
    stored = [event for event in events if event[0]]
    assert kinds(stored) == ["run_started", "model_replied", "calls_back", "model_replied"]
    assert "".join(data["text"] for _, kind, data in events if kind == "text_arrived").endswith("add: 5")


async def test_a_listener_who_comes_back_in_the_middle_gets_the_rest_and_nothing_twice(api):
    run_id = await api.begin(f'{ADD} then call wait {{"seconds": 0.3}} then {ADD}')
    seen = await api.events(run_id, most=3)
    seen += await api.events(run_id, after=seen[-1][0], most=2)
    seen += await api.events(run_id, after=seen[-1][0])
    assert seen == await api.events(run_id)
    assert [kind for _, kind, _ in seen][-1] == "model_replied"
    assert len({id_ for id_, _, _ in seen}) == len(seen)


async def test_events_of_a_run_can_be_had_from_a_server_that_does_not_work_on_it(api, http_fleet):
    async with api_of(http_fleet.settings, adopts=False) as other:
        run_id = await api.begin(f'call wait {{"seconds": 0.3}} then {ADD}')
        here, there = await asyncio.gather(api.events(run_id), other.events(run_id))
        assert here == there
        assert here[-1][2]["message"]["content"].endswith("add: 5")
        gone_on = await other.client.post(f"/v1/runs/{run_id}/messages", json={"question": ADD})
        assert gone_on.status_code == 202
        rest = await other.events(run_id, after=here[-1][0])
        assert [kind for _, kind, _ in rest][:2] == ["run_resumed", "run_adopted"]
        assert rest[-1][1] == "model_replied"


async def test_a_run_for_another_model_waits_for_its_orchestrator(api):
    run_id = await api.begin("?", model="nobody-has-this")
    assert (await api.client.get(f"/v1/runs/{run_id}")).json()["state"] == "thinking"
    assert (await api.client.delete(f"/v1/runs/{run_id}")).status_code == 204
    assert (await api.client.get(f"/v1/runs/{run_id}")).status_code == 404


async def test_a_cancelled_run_tells_its_listeners_and_cannot_be_cancelled_again(api):
    run_id = await api.begin('call wait {"seconds": 60}')
    listening = asyncio.create_task(api.events(run_id))
    await api.events(run_id, most=3)
    cancelled = await api.client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"})
    assert (cancelled.json()["state"], cancelled.json()["reason"]) == ("cancelled", "enough")
    assert (await listening)[-1][1] == "run_stopped"
    again = await api.client.post(f"/v1/runs/{run_id}/cancel")
    assert again.status_code == 409
    assert again.headers["content-type"] == "application/problem+json"
    assert again.json()["type"] == "urn:toolfleet:problem:run-not-open"


async def test_a_run_waits_for_a_persons_approval(api):
    run_id = await api.begin('call pay {"amount": 5}')
    seen = await api.events(run_id, most=3)
    call_id = seen[-1][2]["awaiting_approval"][0]
    wrong = await api.client.post(f"/v1/runs/{run_id}/approvals", json={"call_id": f"{run_id}.9.9", "granted": True})
    assert wrong.status_code == 409
    foreign = await api.client.post(f"/v1/runs/{run_id}/approvals", json={"call_id": "other.1.0", "granted": True})
    assert foreign.status_code == 404
    decided = {"call_id": call_id, "granted": True, "arguments": {"amount": 4}}
    assert (await api.client.post(f"/v1/runs/{run_id}/approvals", json=decided)).status_code == 200
    assert (await api.ended(run_id))["answer"].endswith("pay: paid 4")


async def test_listeners_of_a_deleted_run_hear_the_end(api, monkeypatch):
    monkeypatch.setattr("toolfleet.orchestrator.doors.http.tail.LOOK_FOR_GONE_EVERY_S", 0.0)
    run_id = await api.begin("?", model="nobody-has-this")
    listening = asyncio.create_task(api.events(run_id))
    await api.events(run_id, most=1)
    await api.client.delete(f"/v1/runs/{run_id}")
    assert [kind for _, kind, _ in await listening][-1] == "run_stopped"


@pytest.mark.parametrize("after", ["abc", "1", "-", "9" * 30 + "-0", "1-1-1"])
async def test_an_event_id_that_is_none_is_refused(api, after):
    run_id = await api.begin("hello")
    answer = await api.client.get(f"/v1/runs/{run_id}/events", headers={"last-event-id": after})
    assert answer.status_code == 400


async def test_a_listener_that_leaves_does_not_stop_the_run(api):
    async with api.client.stream(
        "POST", "/v1/runs", json={"question": f'call wait {{"seconds": 0.3}} then {ADD}', "stream": True}
    ) as response:
        [(_, _, begun)] = await read_events(response, most=1)
    assert (await api.ended(begun["run_id"]))["state"] == "done"


async def test_unknown_runs_paths_and_methods_are_problems(api):
    for method, path in [("GET", "/v1/runs/nope"), ("GET", "/v1/runs/nope/events"), ("DELETE", "/v1/runs/nope")]:
        answer = await api.client.request(method, path)
        assert (answer.status_code, answer.json()["status"]) == (404, 404)
        assert answer.json()["instance"] == path
    missing = await api.client.get("/v1/nope")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    wrong = await api.client.put("/v1/runs")
    assert (wrong.status_code, wrong.headers["content-type"]) == (405, "application/problem+json")
    assert set(wrong.headers["allow"].replace(" ", "").split(",")) & {"POST", "GET"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"question": 5}',
        b'{"question": ""}',
        b"{}",
        b'{"question": "a", "messages": [{"role": "user", "content": "b"}]}',
        b'{"question": "a", "timeout_s": NaN}',
        b'{"question": "a", "timeout_s": 1e999}',
        b'{"question": "a", "unheard": 1}',
        b'{"question": "\\ud800"}',
        b'{"question": "a", "context": {"x": "\\ud800"}}',
        b'{"question": "a", "context": ' + b'{"x":' * 100 + b"1" + b"}" * 100 + b"}",
        b'{"question": "a", "tools": ["unheard-of"]}',
        b"\xff\xfe",
    ],
)
async def test_a_malformed_run_is_refused_and_says_why(api, body):
    answer = await api.client.post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text
    assert answer.json()["detail"]


async def test_a_form_is_no_json(api):
    answer = await api.client.post("/v1/runs", content=b'{"question": "a"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422


async def test_a_body_that_is_too_large_is_refused_announced_or_not(api):
    async def drip():
        for _ in range(80):
            yield b" " * 65536

    announced = await api.client.post("/v1/runs", content=b" " * (4 * 1024 * 1024 + 1))
    assert (announced.status_code, announced.json()["title"]) == (413, "Content Too Large")
    dripped = await api.client.post("/v1/runs", content=drip())
    assert dripped.status_code == 413


async def test_health_readiness_workers_and_metrics(api):
    assert (await api.client.get("/healthz")).json() == {"status": "ok"}
    assert (await api.client.get("/readyz")).status_code == 200
    [worker] = (await api.client.get("/v1/workers")).json()["workers"]
    assert "add" in worker["tools"]
    figures = (await api.client.get("/metrics")).text
    assert 'toolfleet_workers{pool="asyncio"} 1.0' in figures or "toolfleet_workers{" in figures
    assert "toolfleet_calls_dispatched_total" in figures
    assert 'toolfleet_queue_length{queue="io"} ' in figures  # how long it is depends on the tests before
