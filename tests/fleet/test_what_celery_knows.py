"""What Celery's own tools see of calls that the tools' loop takes in by itself, without waking Celery for each."""

import asyncio
import time

import pytest
from fleets import asking, fleet_of

from toolfleet.broker import celery_app

QUICK = 30


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


@pytest.fixture
def control(fleet):
    app = celery_app(fleet.settings)
    yield app.control
    app.close()


@pytest.fixture
def ask_worker(control):
    async def answer(question):
        answers = await asyncio.to_thread(getattr(control.inspect(timeout=20, limit=1), question))
        [only] = answers.values()
        return only

    return answer


@pytest.fixture
def begin(orchestrator):
    async def contents(calls):
        return [message.content for message in await orchestrator.execute(asking(*calls))]

    return lambda *calls: asyncio.create_task(contents(calls))


async def test_a_call_is_seen_by_inspect_from_the_moment_that_its_tool_runs(begin, stage, ask_worker, control):
    answer = begin(("play", {"stage": stage.path}))
    actor = await stage.enters()
    [active] = await ask_worker("active")
    assert (active["id"], active["name"]) == (actor.call_id, "play")
    assert abs(active["time_start"] - time.time()) < 60
    await asyncio.to_thread(control.revoke, actor.call_id, terminate=True)
    assert await answer == ["play was cancelled while it ran."]
    assert await ask_worker("active") == []


async def test_a_call_that_is_revoked_the_moment_it_runs_ends_as_cancelled(begin, stage, control):
    for _ in range(10):
        answer = begin(("play", {"stage": stage.path}))
        actor = await stage.enters()
        await asyncio.to_thread(control.revoke, actor.call_id, terminate=True)
        assert await asyncio.wait_for(answer, 20) == ["play was cancelled while it ran."]


async def test_quick_calls_that_nobody_was_told_of_are_counted(begin, ask_worker):
    before = (await ask_worker("stats"))["total"].get("echo", 0)
    await begin(*(("echo", {"value": number}) for number in range(QUICK)))
    for number in range(QUICK):
        await begin(("echo", {"value": number}))
    assert (await ask_worker("stats"))["total"]["echo"] == before + 2 * QUICK
    assert await ask_worker("active") == []


async def test_events_that_are_switched_on_later_tell_of_calls_from_then_on(begin, fleet, control):
    app = celery_app(fleet.settings)
    heard = []
    await asyncio.to_thread(control.enable_events)
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": heard.append})
        listening = asyncio.create_task(
            asyncio.to_thread(
                lambda: list(_until(receiver, lambda: any(event["type"] == "task-succeeded" for event in heard)))
            )
        )
        while not listening.done():
            assert await begin(("echo", {"value": 1})) == ["1"]
            await asyncio.sleep(0.2)
        await listening
    app.close()
    await asyncio.to_thread(control.disable_events)
    kinds = {event["type"] for event in heard}
    assert {"task-received", "task-succeeded"} <= kinds


def _until(receiver, holds):
    with receiver.consumer_context(wakeup=True) as (connection, _, _):
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, "no event came"
            try:
                connection.drain_events(timeout=0.5)
            except TimeoutError:
                continue
            yield
