"""Traces that begin elsewhere: with a request over HTTP, with a call over MCP; and calls that go on to MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.telemetry.conftest import fleet_of
from tests.telemetry.otlp_collector import Collector

HERE = Path(__file__).parent
WAIT_S = 30
QUESTION = 'call add {"a": 1, "b": 2}'


def span_of(number: int) -> tuple[str, str, str]:
    """A caller's span: its trace, its id, and both as a header."""
    trace_id, span_id = f"{number:032x}", f"{number + 7:016x}"
    return trace_id, span_id, f"00-{trace_id}-{span_id}-01"


@pytest.fixture(scope="module")
def fleet(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    config = tmp_path_factory.mktemp("mcp") / "mcp.json"
    asking = {"command": sys.executable, "args": [str(HERE / "asking_mcp_server.py")]}
    config.write_text(json.dumps({"mcpServers": {"there": asking}}))
    environment = {"TOOLFLEET_MCP_CONFIG": str(config)}
    modules = ["traced_tools", "toolfleet.workers.packs.mcp"]
    with fleet_of(collector, {"io": 1}, environment=environment, modules=modules) as running:
        yield running


@pytest.fixture
async def api(fleet, collector, model, tmp_path):
    """The API in a process of its own: its address, and the headers of whoever may use it."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "traced_api.py"), model.base_url, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **fleet.settings.as_environment(), **collector.environment, "OTEL_SERVICE_NAME": "api"},
    )
    with process:
        try:
            url = (await asyncio.to_thread(process.stdout.readline)).strip()
            key = {"authorization": f"Bearer {(tmp_path / 'api.key').read_text().strip()}"}
            async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, headers=key) as client:
                yield client
            process.stdin.close()
            await asyncio.to_thread(process.wait, WAIT_S)
        finally:
            process.kill()


async def until_below(collector, trace_id, name):
    spans = await asyncio.to_thread(
        collector.until, lambda spans: [s for s in spans if (s.trace_id, s.name) == (trace_id, name)] and spans
    )
    return next(span for span in spans if (span.trace_id, span.name) == (trace_id, name))


def top_of(spans, span):
    """The span above all that is known of a span's ancestors."""
    known = {each.span_id: each for each in spans if each.trace_id == span.trace_id}
    while span.parent in known:
        span = known[span.parent]
    return span.parent


async def test_T2_a_request_with_a_traceparent_is_continued_at_every_door_and_its_repeats_too(api, collector):
    run = {"question": QUESTION}
    said = {"model": "toolfleet-rehearsal", "messages": [{"role": "user", "content": QUESTION}]}
    asked = {"model": "toolfleet-rehearsal", "input": QUESTION}
    doors = {
        "/v1/runs": (run, "invoke_agent"),
        "/v1/chat/completions": (said, "invoke_agent"),
        "/v1/responses": (asked, "invoke_agent"),
        "/v1/tools/add/call": ({"arguments": {"a": 1, "b": 2}}, "execute_tool add"),
    }
    for number, (path, (body, name)) in enumerate(doors.items(), start=0xA000):
        trace_id, span_id, header = span_of(number)
        _, _, another = span_of(number + 0x1000)
        once = {"idempotency-key": path}
        first = await api.post(path, json=body, headers={"traceparent": header, "baggage": "tenant=acme", **once})
        assert first.is_success, first.text
        again = await api.post(path, json=body, headers={"traceparent": another, **once})
        assert again.is_success, again.text
        span = await until_below(collector, trace_id, name)
        # The web framework has spans of its own in between.
        await asyncio.to_thread(collector.until, lambda spans, span=span, top=span_id: top_of(spans, span) == top)
        repeated = [each for each in collector.spans if each.trace_id == span_of(number + 0x1000)[0]]
        assert [each.name for each in repeated if each.scope == "toolfleet"] == []


async def test_the_trace_of_a_call_stands_where_one_looks_at_it(api):
    trace_id, _, header = span_of(0xE000)
    run_id = (await api.post("/v1/runs", json={"question": QUESTION}, headers={"traceparent": header})).json()["run_id"]
    await api.get(f"/v1/runs/{run_id}/events")  # to their end
    call = (await api.get(f"/v1/runs/{run_id}/calls/{run_id}.1.0")).json()
    assert (call["trace_id"], call["state"]) == (trace_id, "succeeded"), call
    key = api.headers["authorization"].removeprefix("Bearer ")
    await api.post("/sign-in", data={"key": key}, headers={"sec-fetch-site": "same-origin"})
    assert trace_id in (await api.get(f"/calls/{run_id}.1.0")).text


async def test_T2_a_traceparent_that_is_none_is_no_reason_to_refuse_a_request(api):
    for garbage in ("", "00-0-0-0", f"00-{'z' * 32}-{'1' * 16}-01", f"00-{'0' * 32}-{'0' * 16}-01", "x" * 4000):
        headers = {"traceparent": garbage, "tracestate": "=,=,", "baggage": "=;;,%zz=%zz"}
        answer = await api.post("/v1/tools/add/call", json={"arguments": {"a": 1, "b": 2}}, headers=headers)
        assert answer.is_success, answer.text


async def test_T12_a_call_over_mcp_is_continued_and_one_to_an_mcp_server_passed_on(api, collector):
    trace_id, span_id, header = span_of(0xC000)
    async with (
        httpx2.AsyncClient(headers={"authorization": api.headers["authorization"]}, timeout=WAIT_S) as http,
        Client(streamable_http_client(f"{api.base_url}/mcp", http_client=http)) as client,
    ):
        result = await client.call_tool("there_came_along", {}, meta={"traceparent": header})
    call = await until_below(collector, trace_id, "execute_tool there_came_along")
    process = await until_below(collector, trace_id, "process io")
    await asyncio.to_thread(collector.until, lambda spans: top_of(spans, call) == span_id)
    passed_on = result.content[0].text
    assert passed_on.split("-")[1] == trace_id
    assert process.parent == call.span_id
    asking_id = passed_on.split("-")[2]
    spans = await asyncio.to_thread(
        collector.until, lambda spans: [s for s in spans if s.span_id == asking_id] and spans
    )
    [asking] = [span for span in spans if span.span_id == asking_id]
    assert top_of(spans, asking) == span_id
    assert asking.began_ns >= process.began_ns
