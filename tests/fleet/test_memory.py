"""What a fleet leaves in Redis: as little after many calls as after a few."""

import asyncio
import time

from fleets import asking

from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.streams import Priority

QUEUES = ("io", "cpu", "long")


async def left_behind(fleet) -> dict[str, int]:
    """Entries of queues, replies not yet trimmed, and results not yet dropped."""
    keys = fleet.settings.keys
    client = connect_async(fleet.settings)
    try:
        streams = [keys.queue(queue, level) for queue in QUEUES for level in Priority]
        return {
            "waiting": sum([await client.xlen(stream) for stream in streams]),
            "results": len([key async for key in client.scan_iter(keys.result("*"), count=1000)]),
        }
    finally:
        await client.aclose()


async def test_queues_and_results_are_gone_once_they_are_gathered(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        for _ in range(5):
            await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(200))))
        deadline = time.monotonic() + 20
        while (left := await left_behind(fleet)) != {"waiting": 0, "results": 0}:
            assert time.monotonic() < deadline, left
            await asyncio.sleep(0.2)


async def test_an_orchestrator_that_leaves_takes_its_results_and_replies_along(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await orchestrator.execute(asking(("echo", {"value": 1}), ("add", {"a": 1, "b": 1})))
        replies = fleet.settings.keys.replies(orchestrator.orchestrator_id)
    client = connect_async(fleet.settings)
    exists = await client.exists(replies)
    await client.aclose()
    assert (await left_behind(fleet))["results"] == 0
    assert not exists
