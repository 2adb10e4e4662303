"""Who looks at a run asks for all of its calls: those that workers hold are read once, not once for each."""

from __future__ import annotations

import json

import pytest

from toolfleet.connections import connect_async
from toolfleet.orchestrator.fleet.queue_position import PAGE, QueuePositions
from toolfleet.streams import GROUP, Priority

HELD = 3 * PAGE


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


async def test_the_positions_of_many_held_calls_cost_one_reading_of_what_is_held(client, settings):
    stream = settings.keys.queue("io", Priority.NORMAL)
    calls = [f"{n:032x}.1.0" for n in range(HELD)]
    for call in calls:
        await client.xadd(stream, {"b": "[]", "h": json.dumps({"id": call}, separators=(",", ":")), "id": call})
    await client.xgroup_create(stream, GROUP, "0")
    await client.xreadgroup(GROUP, "host-7-x", {stream: ">"}, count=HELD)
    positions = QueuePositions(client, settings)

    async def ranges() -> int:
        return (await client.info("commandstats")).get("cmdstat_xrange", {"calls": 0})["calls"]

    before = await ranges()
    found = [await positions.of(call, "io", Priority.NORMAL) for call in reversed(calls)]

    assert {(each.is_with_worker, each.consumer, each.attempt) for each in found} == {(True, "host-7-x", 1)}
    # One look at what waits, which is nothing, and each held message once; to look for each by itself would be 180,000.
    assert await ranges() - before <= HELD + 10
