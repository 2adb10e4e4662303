"""Calls of workers that speak plain HTTP with the API: poll, ack, result, and what else they say in between."""

from __future__ import annotations

import pytest

from tests.work.remote import Remote, calling, offered, spec
from toolfleet.calls import Returned
from toolfleet.orchestrator.doors.http.key_store import Scope


@pytest.fixture
async def laptop(api):
    """A worker with a key for the tools `a` and `b`."""
    key, _ = await api.door.keyring.add("laptop", scopes=(Scope.WORK,), tools=("a", "b"))
    worker = Remote(api.url, key)
    yield worker
    await worker.http.aclose()


async def test_X5_a_call_is_polled_acknowledged_and_answered_over_http(api, laptop):
    announced = await laptop.announce(spec("a", effect="read_only"), concurrency=2)
    assert announced.status_code == 200, announced.text
    await offered(api, "a")
    call = calling(api, "a", text="9007199254740993 – ünïcödé 🐙")
    [offer] = await laptop.poll()
    assert offer["call"]["arguments"] == '{"text":"9007199254740993 – ünïcödé 🐙"}'
    attempt = await laptop.begin(offer)
    assert (await laptop.beat(attempt)).json()["held"] == [offer["call"]["call_id"]]
    settled = await laptop.returned(attempt, "9007199254740993 ünïcödé 🐙")
    assert settled.json() == {"v": 1, "call_id": offer["call"]["call_id"], "repeated": False}
    result = await call
    assert result == Returned(content="9007199254740993 ünïcödé 🐙")
    assert result.attempt.worker.startswith("laptop@work.")
