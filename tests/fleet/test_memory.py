"""What a fleet leaves in Redis and holds in memory: as little after many calls as after a few."""

import asyncio
import gc
import json
import time
from collections import Counter

from conversations import WrittenModel, requesting
from fleets import asking, fleet_of
from processes import alive, kill, replenish

from toolfleet.connections import connect_async
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet import replies
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallEnded, CallProgressed, CallSubmitted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.packed import FIELD
from toolfleet.streams import Priority

WAIT_S = 30
QUEUES = ("io", "cpu", "long")

ENDED_RUN_BYTES = 1600
"""What a run of one call takes in Redis as long as it is kept."""


class OneCall(WrittenModel):
    """Asks each run for one call, whichever of many it is."""

    async def stream(self, messages, tools, **options):
        asks = requesting(("call_1", "add", '{"a": 1, "b": 2}'))
        has_asked = isinstance(messages[-1], ToolMessage)
        self._replies = [] if has_asked else [(asks, "tool_calls")]
        async for event in super().stream(messages, tools, **options):
            yield event


async def left_behind(fleet) -> dict[str, int]:
    """Entries of queues, and results not yet dropped."""
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


async def test_an_orchestrator_that_falls_quiet_keeps_no_reply_until_the_next_one(fleet, monkeypatch):
    monkeypatch.setattr(replies, "BLOCK_MS", 60_000)  # longer than this test has: nothing else makes it look
    async with connect_async(fleet.settings) as client, Orchestrator(settings=fleet.settings) as orchestrator:
        stream = fleet.settings.keys.replies(orchestrator.orchestrator_id)
        await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(20))))
        assert await client.exists(stream)
        deadline = time.monotonic() + WAIT_S
        while entries := await client.xrange(stream):
            assert time.monotonic() < deadline, entries
            await asyncio.sleep(0.1)


async def test_an_orchestrator_that_leaves_takes_its_results_and_replies_along(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await orchestrator.execute(asking(("echo", {"value": 1}), ("add", {"a": 1, "b": 1})))
        stream = fleet.settings.keys.replies(orchestrator.orchestrator_id)
    client = connect_async(fleet.settings)
    exists = await client.exists(stream)
    await client.aclose()
    assert (await left_behind(fleet))["results"] == 0
    assert not exists


async def test_an_ended_run_of_one_call_costs_redis_no_more_than_is_said(fleet, client):
    keys, count = fleet.settings.keys, 150  # a sorted set of more than 128 takes its full size for each
    async with Orchestrator(model=OneCall(), settings=fleet.settings) as orchestrator:
        runs = await asyncio.gather(*(orchestrator.run("What is one and two?") for _ in range(count)))
    used = 0
    for run in runs:
        assert len(run.calls) == 1
        [(_, pack)] = await client.xrange(keys.run(run.run_id))  # it leaves only once they are packed
        assert FIELD in pack
        used += await client.memory_usage(keys.run(run.run_id)) + await client.memory_usage(keys.head(run.run_id))
    lists = [keys.runs(), keys.runs_ending(), keys.run_names(), keys.run_states()]
    shares = [await client.memory_usage(name, samples=0) / await client.zcard(name) for name in lists]
    assert used / count + sum(shares) <= ENDED_RUN_BYTES


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_the_garbage_collector_has_one_object_to_look_at_for_each_call_that_waits(fleet, tmp_path):
    count = 300
    line = {"path": str(tmp_path / "lines"), "seconds": 1}
    asked = asking(*[("write_line", line)] * count)  # one that is not kept to be sent again
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await orchestrator.execute(asking(("add", {"a": 1, "b": 1})))
        before = objects_held()
        waiting = asyncio.create_task(orchestrator.execute(asked))

        async def are_sent():
            return orchestrator.dispatched == 1 + count

        await until(are_sent)
        more = objects_held() - before
        await waiting
    assert more.pop("CallRecord") == count
    assert more.total() < count / 2, more


def held(run_id):
    """The values of a run that this process holds."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Run) and each.run_id == run_id]


async def test_a_run_at_rest_is_not_held_though_somebody_waits_for_it_and_looks_on(fleet, store, stage):
    heard = []
    submit = requesting(("slow", "play_long", json.dumps({"stage": stage.path})))
    model = WrittenModel((submit, "tool_calls"), (AssistantMessage(content="I will not wait."), "stop"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle", on_event=heard.append)
        waiting = asyncio.create_task(orchestrator.wait(run_id))
        actor = await stage.enters()

        async def is_at_rest():
            return orchestrator.working == 0 and (await store.load(run_id)).run.state is State.WAITING

        await until(is_at_rest)
        assert held(run_id) == []

        async def tells():
            actor.progresses(0.5, "half way")
            return any(isinstance(event, CallProgressed) for event in heard)

        await until(tells)
        assert held(run_id) == []
        actor.returns("at last")
        run = await asyncio.wait_for(waiting, WAIT_S)
    [submitted] = [event for event in heard if isinstance(event, CallSubmitted)]
    told = [event for event in heard if isinstance(event, CallProgressed | CallEnded)]
    assert {(event.call_id, event.tool) for event in told} == {(submitted.call_id, "play_long")}
    assert isinstance(told[-1], CallEnded)
    assert run.state is State.DONE


def objects_held() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects())


async def until_packed():
    """The histories of ended runs are, soon after."""
    async with asyncio.timeout(WAIT_S):
        while objects_held()["_Ended"]:
            await asyncio.sleep(0.2)


class Forgetful(OneCall):
    """The same, and what it has heard is not kept for a test to look at."""

    async def stream(self, messages, tools, **options):
        self.heard.clear()
        async for event in super().stream(messages, tools, **options):
            yield event


async def test_an_orchestrator_holds_no_more_after_many_runs_than_what_it_remembers_of_the_last_ones():
    """Workers are killed meanwhile: the calls that they had come back by other ways than most."""
    at_once, kills = 50, [True, True, False, False, False, False]
    with fleet_of(pools={"io": 2}) as fleet:
        async with Orchestrator(model=Forgetful(), settings=fleet.settings) as orchestrator:

            async def some_end(*, is_killed):
                runs = [asyncio.create_task(orchestrator.run("What is one and two?")) for _ in range(at_once)]
                if is_killed:
                    await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
                    kill(alive(fleet, "io")[0])
                    await asyncio.to_thread(replenish, fleet, io=2)
                await asyncio.gather(*runs)

            await some_end(is_killed=True)
            await until_packed()
            before = objects_held()
            for is_killed in kills:
                await some_end(is_killed=is_killed)
            await until_packed()
            grown = objects_held() - before
            # Each write that can be given again is itself and two lists; there are as many as 32 MB hold.
            writes = grown.pop("Write")
            assert writes >= len(kills) * at_once
            grown["list"] -= 2 * writes
            assert max(grown.values()) < len(kills) * at_once / 2, grown.most_common(5)
