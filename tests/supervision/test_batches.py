"""What is queued to be sent together is sent, whoever cancels tasks that are not their own."""

import asyncio
import tracemalloc

import pytest

from toolfleet.batcher import Batcher


class Place:
    """Takes a batch when it is told to, and keeps what it has taken."""

    def __init__(self, *, max_batch: int = 100) -> None:
        self.taken: list[str] = []
        self.is_open = asyncio.Event()
        self.has_come = asyncio.Event()
        self.batcher: Batcher[str, str] = Batcher(self.take, max_batch=max_batch)

    async def take(self, items):
        self.has_come.set()
        await self.is_open.wait()
        self.taken += items
        return [item.upper() for item in items]


@pytest.fixture
async def place():
    return Place(max_batch=2)


def cancel_all_others():
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_batch_on_its_way_is_sent_again_in_its_place_when_every_task_is_cancelled(place):
    outcomes = [place.batcher.add(item) for item in "abc"]
    await place.has_come.wait()
    place.batcher.put("d")
    cancel_all_others()
    place.is_open.set()
    assert await asyncio.gather(*outcomes) == ["A", "B", "C"]
    await place.batcher.drain()
    assert place.taken == ["a", "b", "c", "d"]


async def test_what_was_cancelled_before_its_first_step_is_sent(place):
    place.is_open.set()
    outcome = place.batcher.add("a")
    cancel_all_others()
    assert await outcome == "A"
    assert await place.batcher.add("b") == "B"


async def test_who_waits_no_longer_for_the_end_stops_no_batch(place):
    outcome = place.batcher.add("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await place.batcher.drain()
    place.is_open.set()
    assert await outcome == "A"
    assert place.taken == ["a"]


async def test_the_end_is_waited_for_though_the_sending_is_cancelled_meanwhile(place):
    place.batcher.put("a")
    await place.has_come.wait()
    draining = asyncio.create_task(place.batcher.drain())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task(), draining}:
        task.cancel()
    place.is_open.set()
    await draining
    assert place.taken == ["a"]


async def test_what_stays_behind_is_not_copied_for_each_batch():
    count, peaks = 200_000, []

    async def send(items):
        peaks.append(tracemalloc.get_traced_memory()[1] - tracemalloc.get_traced_memory()[0])
        tracemalloc.reset_peak()
        return [True] * len(items)

    batcher: Batcher[int, bool] = Batcher(send, max_batch=1000)
    tracemalloc.start()
    try:
        assert await batcher.add_all(range(count))
    finally:
        tracemalloc.stop()
    assert len(peaks) == count / 1000
    assert max(peaks[2:]) < count  # bytes; the places of as many items take eight times that


async def test_what_is_queued_as_soon_as_the_last_outcome_is_known_leaves_in_the_next_turns_of_the_loop(place):
    place.is_open.set()
    assert await place.batcher.add("a") == "A"
    place.batcher.put("b")
    for _ in range(3):
        await asyncio.sleep(0)
    assert place.taken == ["a", "b"]
