"""Workers with different tools on one queue: each call comes to a worker that can run it, once."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from fleets import HERE, asking
from processes import lines, until_announced

from orchestrator import Orchestrator
from toolfleet.local import LocalFleet

CALLS = 1000


@pytest.fixture(params=["io", "cpu"])
def divided(request):
    """Two workers of one pool, each with tools of its own."""
    with LocalFleet(["lane_tools"], pools={request.param: 1}, environment=HERE) as fleet:
        fleet._modules = ["other_lane_tools"]
        other = fleet.start_worker(request.param)
        until_announced(fleet, other)
        yield fleet, request.param


async def test_each_of_a_thousand_calls_comes_once_to_a_worker_with_its_tool(divided, tmp_path):
    fleet, pool = divided
    ledger = str(tmp_path / "ledger")
    here, there = ("note_here", "note_there") if pool == "io" else ("note_in_process", "note_in_other_process")
    calls = [((here, there)[n % 2], {"path": ledger, "line": str(n)}) for n in range(CALLS)]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        contents = [message.content for message in await orchestrator.execute(asking(*calls))]
    expected = [f"{('here', 'there')[n % 2]} {n}" for n in range(CALLS)]
    assert contents == expected
    assert Counter(lines(tmp_path / "ledger")) == Counter(expected)
