"""Any number of tasks wait for what is written to runs, and leave connections for others."""

from __future__ import annotations

import asyncio
import time

from tests.run import machine
from toolfleet.connections import MAX_CONNECTIONS, connect
from toolfleet.orchestrator.run.events import RunStopped
from toolfleet.orchestrator.store.journal import Journal
from toolfleet.orchestrator.store.news import AT_ONCE, WAIT_S, News
from toolfleet.orchestrator.store.recent import RecentWrites
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

WAITERS = 3 * AT_ONCE


def reading(settings):
    with connect(settings) as other:
        return sum(each["cmd"] == "xread" and "b" in each["flags"] for each in other.client_list())


async def test_each_who_waits_hears_the_news_and_only_some_have_a_connection(client, settings):
    news = News(client, settings.keys)
    waiting = [asyncio.create_task(news.wait(f"r{n}", "0")) for n in range(WAITERS)]
    async with asyncio.timeout(WAIT_S / 2):
        while await asyncio.to_thread(reading, settings) < AT_ONCE:
            await asyncio.sleep(0.01)
    assert await asyncio.to_thread(reading, settings) == AT_ONCE
    assert not any(task.done() for task in waiting)
    began_s = time.monotonic()
    for n in range(WAITERS):
        await client.xadd(settings.keys.run(f"r{n}"), {"e": "news"})
    await asyncio.gather(*waiting)
    assert time.monotonic() - began_s < WAIT_S


async def test_more_wait_for_ends_of_runs_than_a_client_may_have_connections(client, settings):
    store = RunStore(client, settings, Seal(settings), recent=RecentWrites())
    started = machine.STARTED.model_copy(update={"run_id": "many", "orchestrator_id": "a"})
    journal = Journal(store, await store.begin(started, owner="a"), "a")

    async def follow():
        return [entry async for entry in store.follow("many")]

    ends = [asyncio.create_task(store.end_of("many")) for _ in range(MAX_CONNECTIONS)]
    followers = [asyncio.create_task(follow()) for _ in range(200)]
    async with asyncio.timeout(30):
        while await asyncio.to_thread(reading, settings) < AT_ONCE:
            await asyncio.sleep(0.05)
    stopped = RunStopped(state="failed", reason="x")
    await journal.append(stopped)
    assert {run.reason for run in await asyncio.gather(*ends)} == {"x"}
    assert {len(entries) for entries in await asyncio.gather(*followers)} == {2}


async def test_a_run_that_nothing_happens_to_is_not_read_again_and_again_by_who_waits_for_its_end(client, settings):
    store = RunStore(client, settings, Seal(settings), recent=RecentWrites())
    started = machine.STARTED.model_copy(update={"run_id": "quiet", "orchestrator_id": "a"})
    journal = Journal(store, await store.begin(started, owner="a"), "a")

    async def reads():
        return (await client.info("commandstats"))["cmdstat_xrange"]["calls"]

    ended = asyncio.create_task(store.end_of("quiet"))
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(reading, settings):
            await asyncio.sleep(0.01)
        before = await reads()
        await asyncio.sleep(WAIT_S + 1)  # that nothing happens is no event
        assert await reads() == before
        await journal.append(RunStopped(state="failed", reason="x"))
        assert (await ended).reason == "x"
