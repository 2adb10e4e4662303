"""What is told of running calls: the newest value of each is sent in the end, whichever threads it comes from."""

import asyncio
import threading

from toolfleet.errors import StoreUnreachable
from toolfleet.workers.delivery.newest import NewestOfEach, SideLoop

CALLS = [f"r.1.{position}" for position in range(20)]
LAST = 2000


async def test_the_last_value_of_each_call_is_sent_however_many_threads_tell():
    sent = {}
    told = asyncio.Event()

    async def send(newest):
        sent.update(newest)
        await asyncio.sleep(0)
        if all(sent.get(call_id) == LAST for call_id in CALLS):
            told.set()

    newest = NewestOfEach(asyncio.get_running_loop(), send, is_owed=True)

    def tell(call_id):
        for value in range(1, LAST + 1):
            newest.put(call_id, value)

    async with asyncio.timeout(60):
        await asyncio.gather(*(asyncio.to_thread(tell, call_id) for call_id in CALLS))
        await told.wait()


async def test_a_value_that_waits_gives_way_to_a_newer_one():
    batches = []
    gate = asyncio.Event()

    async def send(newest):
        batches.append(newest)
        await gate.wait()

    newest = NewestOfEach(asyncio.get_running_loop(), send, is_owed=True)
    newest.put("a", 1)
    while not batches:
        await asyncio.sleep(0)
    for value in (2, 3):
        newest.put("a", value)
    gate.set()
    await newest.drain(within_s=10)
    assert batches == [{"a": 1}, {"a": 3}]


async def test_what_is_owed_waits_for_redis_and_gives_way_meanwhile():
    attempts = []

    async def send(newest):
        attempts.append(dict(newest))
        if len(attempts) == 1:
            sender.put("a", 2)
            raise StoreUnreachable("away")

    sender = NewestOfEach(asyncio.get_running_loop(), send, is_owed=True)
    sender.put("a", 1)
    await asyncio.sleep(0)
    await sender.drain(within_s=10)
    assert attempts == [{"a": 1}, {"a": 2}]


async def test_what_is_not_owed_is_dropped_where_redis_is_away():
    attempts = []

    async def send(newest):
        attempts.append(dict(newest))
        raise StoreUnreachable("away")

    sender = NewestOfEach(asyncio.get_running_loop(), send, is_owed=False)
    sender.put("a", 1)
    await asyncio.sleep(0)
    await sender.drain(within_s=10)
    await sender.drain(within_s=10)
    assert attempts == [{"a": 1}]


async def test_the_end_does_not_wait_for_longer_than_it_was_told():
    async def send(_newest):
        await asyncio.Event().wait()

    sender = NewestOfEach(asyncio.get_running_loop(), send, is_owed=True)
    sender.put("a", 1)
    async with asyncio.timeout(10):
        await sender.drain(within_s=0.05)


def test_a_loop_that_a_tool_blocks_has_its_values_sent_from_another_thread():
    threads = []
    sent = threading.Event()

    async def send(_newest):
        threads.append(threading.current_thread().name)
        sent.set()

    async def blocked():
        NewestOfEach(SideLoop("reports"), send, is_owed=True).put("a", 1)
        assert sent.wait(10)  # blocks this loop, as a tool would

    asyncio.run(blocked())
    assert threads == ["reports"]
