"""A tool that wants to be asked later: its call waits and is tried again, and so do those that share its limit."""

from __future__ import annotations

import asyncio

import pytest
from fleets import HERE
from processes import WAIT_S, lines

from toolfleet import FailureKind, RetryAfter
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(["limited_tools"], pools={"io": 2}, environment=HERE) as running:
        yield running


@pytest.fixture
async def call(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        yield orchestrator.call


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


def moments(ledger):
    """Who began, and when, in that order."""
    return [(word, float(at)) for word, at in map(str.split, lines(ledger))]


async def until(happened):
    async with asyncio.timeout(WAIT_S):
        while not happened():
            await asyncio.sleep(0.01)


async def test_F9_it_is_tried_again_when_it_said_and_that_is_no_attempt(call, ledger):
    async with asyncio.timeout(WAIT_S):
        result = await call("upstream", {"ledger": str(ledger), "seconds": 1.0}, tenant="alone", patience_s=60)
    assert result.content == "attempt 1"
    [(_, first), (_, second)] = moments(ledger)
    assert second - first >= 1.0


async def test_F9_whoever_shares_its_limit_waits_too_and_others_do_not(call, ledger):
    asked = {"ledger": str(ledger), "seconds": 2.0}
    paused = [asyncio.create_task(call("upstream", asked, tenant="acme", patience_s=60))]
    await until(lambda: len(lines(ledger)) == 1)
    await asyncio.sleep(0.3)  # until its worker has put it back
    paused += [asyncio.create_task(call("upstream", asked, tenant="acme", patience_s=60)) for _ in range(5)]
    async with asyncio.timeout(WAIT_S):
        await call("upstream", asked, tenant="umbrella", patience_s=60)
        await asyncio.gather(*paused)
    [(_, first), *rest] = moments(ledger)
    assert rest[0][0] == "umbrella"
    assert [word for word, _ in rest[1:]] == ["acme"] * 6
    assert all(at - first >= 2.0 for _, at in rest[1:])


async def test_an_effect_that_was_not_had_is_had_once_afterwards(fleet, call, ledger):
    async with asyncio.timeout(WAIT_S):
        result = await call("once_upstream", {"ledger": str(ledger), "seconds": 0.5}, patience_s=60)
    assert result.content == "attempt 1"
    assert len(lines(ledger)) == 2
    async with connect_async(fleet.settings) as client:
        assert await client.hget(fleet.settings.keys.counters(), "duplicate_messages") is None


async def test_F9_the_model_is_told_if_the_tool_wants_it_so(call, ledger):
    told = await call("upstream", {"ledger": str(ledger), "seconds": 12, "tell_model": True}, tenant="told")
    assert (told.kind, told.message) == (FailureKind.LIMIT, "upstream is rate limited, try again in 12 s.")


async def test_the_model_is_told_where_the_deadline_comes_first(call, ledger):
    told = await call("upstream", {"ledger": str(ledger), "seconds": 60}, tenant="late", timeout_s=20)
    assert told.kind is FailureKind.LIMIT
    assert told.message == "upstream is rate limited, try again in 60 s, which is after the call's deadline."


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_that_means_nothing_is_refused_where_it_is_said(seconds):
    with pytest.raises(ValueError, match="more than 0 and at most 86400 seconds"):
        RetryAfter(seconds)
