"""Cancel reaches the end: the queued call never starts, the running one stops, and each says so."""

import asyncio
import json
import time

import psutil
import pytest
from fleets import asking, fleet_of
from processes import alive, kill, replenish, until_gone

from toolfleet.broker import celery_app
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet.cancel import CancelRequest
from toolfleet.streams import Priority
from toolfleet.wire import Seal


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "cpu": 1}) as running:
        yield running


@pytest.fixture
def begin(orchestrator):
    """Start calls; a task whose result is their contents."""

    async def contents(calls):
        return [message.content for message in await orchestrator.execute(asking(*calls))]

    return lambda *calls: asyncio.create_task(contents(calls))


@pytest.fixture
async def revoke(fleet):
    app = celery_app(fleet.settings)

    async def revoked(call_id, *, terminate=True):
        await asyncio.to_thread(app.control.revoke, call_id, terminate=terminate)

    yield revoked
    app.close()


@pytest.mark.parametrize("tool", ["play", "play_once"])
async def test_a_running_async_tool_is_told_and_ends_as_cancelled(begin, stage, revoke, tool):
    answer = begin((tool, {"stage": stage.path}))
    actor = await stage.enters()
    await revoke(actor.call_id)
    doubt = " Its effect may or may not have happened." if tool == "play_once" else ""
    assert await answer == [f"{tool} was cancelled while it ran.{doubt}"]
    assert await actor.leaves() == "cancelled"


async def test_a_tool_on_a_thread_can_see_that_it_was_cancelled(begin, stage, revoke):
    answer = begin(("play_attentively", {"stage": stage.path}))
    actor = await stage.enters()
    await revoke(actor.call_id)
    assert await answer == ["play_attentively was cancelled while it ran."]
    assert await actor.leaves() == "cancelled"


async def test_cancelling_one_call_leaves_its_siblings_alone(begin, stage, revoke):
    answer = begin(*[("play", {"stage": stage.path})] * 3)
    actors = {actor.call_id[-1]: actor for actor in [await stage.enters() for _ in range(3)]}
    await revoke(actors["1"].call_id)
    assert await actors["1"].leaves() == "cancelled"
    actors["0"].returns("first")
    actors["2"].returns("third")
    assert await answer == ["first", "play was cancelled while it ran.", "third"]


@pytest.mark.parametrize("tool", ["play_in_process", "play_in_process_once"])
async def test_a_running_process_tool_is_interrupted_and_ends_as_cancelled(begin, ask, stage, revoke, tool):
    answer = begin((tool, {"stage": stage.path}))
    actor = await stage.enters()
    await revoke(actor.call_id)
    doubt = " Its effect may or may not have happened." if tool == "play_in_process_once" else ""
    assert await answer == [f"{tool} was cancelled.{doubt}"]
    assert await actor.leaves() == ""
    assert await ask(*(("blocking_echo", {"value": n}) for n in range(4))) == ["0", "1", "2", "3"]
    assert len(stage.actors) == 1


async def test_a_process_tool_that_ignores_its_interruption_is_killed(begin, ask, stage, revoke):
    answer = begin(("play_stubbornly", {"stage": stage.path}))
    actor = await stage.enters()
    await revoke(actor.call_id)
    assert await answer == ["play_stubbornly was cancelled."]
    assert await actor.leaves() == "ignored SystemExit"
    until_gone(actor.pid)
    assert await ask(*(("blocking_echo", {"value": n}) for n in range(4))) == ["0", "1", "2", "3"]


MARKED = {
    "play": "play was cancelled while it ran.",
    "play_in_process": "play_in_process was cancelled.",
}


@pytest.mark.parametrize("tool", MARKED)
async def test_X7_a_signed_mark_alone_cancels_a_running_call_and_an_unsigned_one_does_not(fleet, begin, stage, tool):
    seal, mark = Seal(fleet.settings), fleet.settings.keys.cancelled
    answer = begin(*[(tool, {"stage": stage.path})] * 2)
    first, second = [await stage.enters() for _ in range(2)]
    async with connect_async(fleet.settings) as client:
        await client.set(mark(second.call_id), "1", ex=60)
        await client.set(mark(second.call_id), seal.close_cancel(first.call_id), ex=60)
        await client.set(mark(first.call_id), seal.close_cancel(first.call_id), ex=60)
        await first.leaves()  # so this worker has looked at the marks of both
        second.returns("goes on")
    assert sorted(await answer) == sorted(["goes on", MARKED[tool]])


async def test_what_a_process_tool_has_started_ends_with_it(begin, stage, revoke):
    answer = begin(("play_with_a_child", {"stage": stage.path}))
    actor = await stage.enters()
    assert psutil.pid_exists(actor.seen["child"])
    await revoke(actor.call_id)
    assert await answer == ["play_with_a_child was cancelled."]
    await until_dead(actor.seen["child"])


async def test_what_a_process_tool_has_started_ends_with_its_time(begin, tmp_path):
    written = tmp_path / "child"
    [answer] = await begin(("outlived_by_a_child", {"path": str(written)}))
    assert "its process was killed" in answer
    await until_dead(int(written.read_text()))


async def test_on_a_pool_of_threads_a_cancelled_call_ends_and_its_tool_can_see_it(stage):
    with fleet_of("--kind", "threads", pools={"io": 1}) as fleet:
        app = celery_app(fleet.settings)
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            answer = asyncio.create_task(orchestrator.execute(asking(("play_attentively", {"stage": stage.path}))))
            actor = await stage.enters()
            await asyncio.to_thread(app.control.revoke, actor.call_id, terminate=True)
            [message] = await answer
            assert message.content == "play_attentively was cancelled."
            assert await actor.leaves() == "cancelled"
        app.close()


async def test_a_queued_call_is_dropped_and_ends_as_cancelled(fleet, begin, stage, revoke):
    filling = begin(*[("play_in_process", {"stage": stage.path})] * 16)
    running = [await stage.enters() for _ in range(2)]
    queued = f"{running[0].call_id.partition('.')[0]}.1.15"
    await revoke(queued)
    for actor in running:
        actor.returns()
    for _ in range(13):
        (await stage.enters()).returns()
    contents = await filling
    assert contents == ["done"] * 15 + ["play_in_process was cancelled."]
    assert queued not in {actor.call_id for actor in stage.actors}


async def test_revoking_without_terminate_lets_a_running_call_end(begin, stage, revoke):
    answer = begin(("play", {"stage": stage.path}))
    actor = await stage.enters()
    await revoke(actor.call_id, terminate=False)
    actor.returns("finished")
    assert await answer == ["finished"]


async def test_revoking_an_unknown_call_disturbs_nobody(ask, revoke):
    await revoke("nobody.1.0")
    assert await ask(("echo", {"value": 1})) == ["1"]


async def test_a_call_cancelled_in_its_queue_never_starts_on_a_worker_that_comes_later(fleet, orchestrator, stage):
    """No worker is there to hear the broadcast; the mark is what stops it."""
    await orchestrator.catalog.offered()
    [worker] = alive(fleet, "io")
    kill(worker)
    answer = asyncio.create_task(orchestrator.execute(asking(("play_once", {"stage": stage.path}))))
    call_id = await queued_call(fleet)
    await orchestrator._services.canceller.cancel([CancelRequest(call_id, "play_once", time.time() + 60)])
    await asyncio.to_thread(replenish, fleet, io=1)
    [message] = await answer
    assert message.content == "play_once was cancelled before it started."
    assert stage.actors == []


async def until_dead(pid):
    """Wait until a process runs no more; its parent may still have to take note."""
    async with asyncio.timeout(30):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.02)


async def queued_call(fleet):
    """The id of the one call that was sent."""
    async with asyncio.timeout(30), connect_async(fleet.settings) as client:
        while True:
            for level in Priority:
                for _, fields in await client.xrange(fleet.settings.keys.queue("io", level)):
                    return json.loads(fields[b"h"])["id"]
            await asyncio.sleep(0.02)
