"""What a key with the scope `read` alone is shown: where things stand, and nothing that passed through."""

import asyncio
import json

import pytest
from hypothesis import given, strategies as st

from tests.http.fleet_of_doors import read_events
from toolfleet.orchestrator.doors.http.hiding import hidden
from toolfleet.orchestrator.doors.http.key_store import Scope

SECRET = "the-launch-code-9007199254740993"
ECHO = f'call echo {{"value": "{SECRET}"}}'


@pytest.fixture
async def looker(api):
    """Headers of a key that may look."""
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,))
    return {"authorization": f"Bearer {key}"}


async def told_everywhere(api, headers, **named):
    """What each GET of the API answers, by its path, with these ids in it."""
    told = {}
    for path, methods in (await api.client.get("/openapi.json")).json()["paths"].items():
        ids = [each["name"] for each in methods.get("get", {}).get("parameters", ()) if each["in"] == "path"]
        if "get" not in methods or not set(ids) <= set(named):
            continue
        query = {"q": named["run_id"]} if path.endswith("/find") else {}
        answer = await api.client.get(path.format(**named), params=query, headers=headers)
        told[path] = answer.text
    return told


async def test_W11_what_passed_through_is_hidden_from_a_key_that_may_only_look(api, looker):
    run_id = await api.begin(f"{ECHO} and remember {SECRET}", context={"pin": 4711}, state={"note": SECRET})
    whole = await api.ended(run_id)
    run = (await api.client.get(f"/v1/runs/{run_id}", headers=looker)).json()
    size = len(whole["messages"][0]["content"].encode())
    assert run["messages"][0] == {**whole["messages"][0], "content": f"hidden ({size} bytes)"}
    asked, answered = run["messages"][1]["tool_calls"][0], run["messages"][2]
    said = whole["messages"][1]["tool_calls"][0]["arguments"]
    assert (asked["name"], asked["arguments"]) == ("echo", f"hidden ({len(said)} bytes)")
    assert (answered["name"], answered["content"]) == ("echo", f"hidden ({len(SECRET)} bytes)")
    assert (run["state"], run["calls"][0]["tool"], run["calls"][0]["result"]["type"]) == ("done", "echo", "returned")
    assert run["terms"]["context"] == {"hidden": "hidden (12 bytes)"}
    events = await api.events(run_id, **looker)
    assert [kind for _, kind, _ in events] == [kind for _, kind, _ in await api.events(run_id)]
    assert SECRET not in json.dumps(events)
    assert "hidden (" in json.dumps(events)


async def test_W11_nothing_that_can_be_read_at_all_tells_such_a_key_what_passed_through(api, looker):
    run_id = await api.begin(ECHO)
    await api.ended(run_id)
    asked = {"arguments": {"value": SECRET}, "patience_s": 0}
    handle = (await api.client.post("/v1/tools/echo/call", json=asked)).json()["handle"]
    assert SECRET in (await api.client.get(f"/v1/handles/{handle}", params={"wait": 10})).text
    named = {"run_id": run_id, "handle": handle, "call_id": f"{run_id}.1.0", "queue": "io"}
    whole = await told_everywhere(api, None, **named)
    shown = await told_everywhere(api, looker, **named)
    assert {path for path, text in whole.items() if SECRET in text} >= {
        "/v1/runs",
        "/v1/runs/{run_id}",
        "/v1/runs/{run_id}/calls/{call_id}",
        "/v1/runs/{run_id}/events",
        "/v1/handles/{handle}",
    }
    assert [path for path, text in shown.items() if SECRET in text] == []


async def test_W11_what_cannot_be_shown_in_part_is_refused(api, looker):
    kept = (await api.client.post("/v1/tools/logged/call", json={"arguments": {"lines": 61_111}})).json()["artifact"]
    for path in (f"/v1/artifacts/{kept}", "/v1/responses/resp_1", "/v1/responses/resp_1/input_items"):
        refused = await api.client.get(path, headers=looker)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:toolfleet:problem:scope-missing"), path
    assert (await api.client.post("/mcp", json={}, headers=looker)).status_code == 403


@pytest.mark.parametrize("scope", [Scope.PAYLOADS, Scope.RUN, Scope.APPROVE, Scope.ADMIN])
async def test_whoever_acts_or_may_read_payloads_sees_them(api, scope):
    run_id = await api.begin(ECHO)
    whole = await api.ended(run_id)
    key, _ = await api.door.keyring.add(scopes=(scope,))
    headers = {"authorization": f"Bearer {key}"}
    assert (await api.client.get(f"/v1/runs/{run_id}", headers=headers)).json() == whole


async def test_W11_news_that_comes_while_one_looks_is_hidden_too(api, looker):
    run_id = await api.begin(f'call wait {{"seconds": 0.3}} then {ECHO}')
    async with (
        asyncio.timeout(20),
        api.client.stream("GET", f"/v1/runs/{run_id}/events", headers=looker) as response,
    ):
        events = await read_events(response)
    assert events[-1][1] == "model_replied"
    assert SECRET not in json.dumps(events)


def test_which_calls_were_sent_is_shown_by_itself_and_with_what_came_back():
    alone = {"type": "calls_sent", "deadlines_unix_s": {"r.1.0": 1.5}, "direct": ["r.1.0"], "held_s": 0.02}
    together = {"type": "calls_back", "sent": alone}
    assert (hidden(alone), hidden(together)) == (alone, together)


SAID = st.recursive(
    st.text() | st.none() | st.booleans() | st.integers(-(2**53), 2**53),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
)


@given(SAID, st.sampled_from(["context", "content", "state", "values", "attributes", "arguments", "anything else"]))
def test_of_what_callers_and_tools_say_nothing_is_left_but_its_size(value, field):
    marked = {"run_id": "r", field: {"run_id": SECRET, "calls": [{"tool": SECRET}], "value": value}}
    shown = hidden(marked)
    assert SECRET not in json.dumps(shown)
    assert shown["run_id"] == "r"
