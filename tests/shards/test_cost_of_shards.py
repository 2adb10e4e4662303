"""What shards cost, counted by the servers: none of them does more for a run because there are others."""

from __future__ import annotations

import pytest

from benchmarks.shards import fleet_of, stage_of

RUNS = 200
CALLS = 4_000

SPREAD = 0.4
"""How far figures of one fleet may be from those of another: batches are as large as the moment makes them, and what a
server is asked by the second counts with few runs. Twice the work for a run would still be found."""


async def cost(shards):
    with fleet_of(shards) as (settings, fleets):
        async with stage_of(settings, fleets) as stage:
            figures = await stage.measured("run", RUNS, lambda: stage.runs(RUNS))
            stored = [await client.zcard(settings.keys.runs()) for client in stage.clients]
            calls = await stage.measured("call", CALLS, lambda: stage.calls(CALLS))
        return figures, calls, stored


async def test_D10_runs_are_shared_out_evenly_and_none_costs_a_server_more_than_without_the_others():
    alone, calls_alone, [all_runs] = await cost(1)
    shared, calls_shared, runs = await cost(2)
    # The model of capacity: what each server does for a run is the same however many there are, and each has its share.
    assert shared.read_bytes <= alone.read_bytes * (1 + SPREAD)
    assert shared.commands <= alone.commands * (1 + SPREAD)
    assert calls_shared.read_bytes == pytest.approx(calls_alone.read_bytes, rel=SPREAD)
    assert runs[0] == runs[1]
    assert all_runs >= RUNS
