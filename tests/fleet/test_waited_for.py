"""How calls are waited for: pushed results, stored ones whose push was lost, and what waiting costs."""

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, strategies as st

from toolfleet.calls import Returned, ToolCall
from toolfleet.connections import connect_async
from toolfleet.orchestrator.fleet.barrier import Barrier
from toolfleet.orchestrator.fleet.expected import Expectation, ExpectedCalls
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.look_ups import (
    FIRST_S,
    LONGEST_S,
    LOOKS_PER_S,
    THINNED_AFTER,
    TICK_S,
    LookUps,
    first_wait_s,
    wait_s,
)
from toolfleet.orchestrator.fleet.replies import ReplyReader
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

ORCHESTRATOR = "o"


def call(call_id: str, *, deadline_unix_s: float = 4e9) -> ToolCall:
    return ToolCall(
        call_id=call_id,
        run_id="r",
        tool="t",
        arguments="{}",
        deadline_unix_s=deadline_unix_s,
        reply_to=ORCHESTRATOR,
    )


class Runs:
    """Hears of calls that no group waits for."""

    def __init__(self) -> None:
        self.strays: asyncio.Queue[str] = asyncio.Queue()

    def hear_result(self, run_id, call_id, result):
        raise AssertionError("no call is watched here")

    def hear_progress(self, run_id, call_id, progress):
        raise AssertionError("no call is watched here")

    def hear_stray(self, run_id):
        self.strays.put_nowait(run_id)

    def notify(self, run_id):
        raise AssertionError("no run has news here")


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def gatherer(client, settings) -> Gatherer:
    return Gatherer(client, settings, Seal(settings), ORCHESTRATOR)


@pytest.fixture
async def runs(client, settings, gatherer) -> AsyncIterator[Runs]:
    """What a reader of the reply stream tells whoever has runs."""
    runs = Runs()
    reader = ReplyReader(
        client,
        settings,
        Seal(settings),
        ORCHESTRATOR,
        gatherer=gatherer,
        listener=runs,
        on_return=lambda: None,
        supervisor=Supervisor(),
    )
    reader.start()
    yield runs
    await reader.aclose()


@pytest.fixture
def store_result(client, settings):
    async def store(call_id: str, content: str) -> None:
        sealed = Seal(settings).close_result(Returned(content=content), call_id)
        await client.set(settings.keys.result(call_id), sealed, ex=60)

    return store


@pytest.fixture
def push_result(client, settings):
    async def push(call_id: str, content: str) -> None:
        sealed = Seal(settings).close_result(Returned(content=content), call_id)
        await client.xadd(settings.keys.replies(ORCHESTRATOR), {"c": call_id, "r": sealed})

    return push


async def test_a_result_that_is_found_first_ends_the_call_and_its_push_wakes_no_run(
    gatherer, runs, store_result, push_result
):
    barrier = Barrier()
    gatherer.expect(call("found.1.0"), barrier)
    await store_result("found.1.0", "stored")
    await barrier.wait()
    assert barrier.results == {"found.1.0": Returned(content="stored")}
    await push_result("found.1.0", "stored")
    await push_result("unknown.1.0", "nobody waits for it")
    assert await runs.strays.get() == "unknown"  # pushes are heard in order
    assert runs.strays.empty()


async def test_a_result_found_lately_is_a_result_again_for_whoever_expects_the_call_again(
    gatherer, runs, store_result, push_result, client, settings
):
    first, second = Barrier(), Barrier()
    gatherer.expect(call("again.1.0"), first)
    await store_result("again.1.0", "stored")
    await gatherer.look_up(["again.1.0"])
    await client.delete(settings.keys.result("again.1.0"))
    gatherer.expect(call("again.1.0"), second)
    await push_result("again.1.0", "pushed")
    await second.wait()
    assert second.results == {"again.1.0": Returned(content="pushed")}


async def test_a_call_past_its_deadline_ends_however_long_it_has_waited(gatherer, runs):
    barrier, others = Barrier(), Barrier()
    for position in range(10 * LOOKS_PER_S):  # so many that it is seconds until each is looked up
        gatherer.expect(call(f"others.1.{position}"), others)
    gatherer.expect(call("late.1.0", deadline_unix_s=time.time() - 10), barrier)
    await barrier.wait()
    assert barrier.results["late.1.0"].kind == "expired"


async def test_when_pushes_may_be_lost_every_call_is_looked_up_at_once(gatherer, store_result):
    barrier = Barrier()
    for position in range(3):
        gatherer.expect(call(f"r.1.{position}"), barrier)
        await store_result(f"r.1.{position}", str(position))
    gatherer.look_up_all_soon()
    # One look is enough once the tick is over; without the word they would be due at different moments.
    await asyncio.sleep(TICK_S)
    await gatherer.look_up_due()
    assert sorted(barrier.results) == ["r.1.0", "r.1.1", "r.1.2"]


def expectations() -> set[int]:
    """What is kept of calls that wait, each once however many share it."""
    gc.collect()
    return {id(each) for each in gc.get_objects() if isinstance(each, Expectation)}


async def test_calls_that_begin_to_wait_together_share_what_is_kept_of_them(gatherer):
    barrier, other = Barrier(), Barrier()
    for position in range(1000):
        gatherer.expect(call(f"r.1.{position}"), barrier)
        if position % 100 == 0:
            gatherer.expect(call(f"s.1.{position}"), other)
    kept = expectations()
    assert len(kept) < 100
    gatherer.look_up_all_soon()
    assert len(expectations()) <= len(kept)
    gatherer.end("r.1.7", Returned(content="7"))
    assert barrier.results == {"r.1.7": Returned(content="7")}
    assert other.results == {}


@pytest.mark.parametrize("are_looked_up", [False, True])
async def test_nothing_is_kept_of_a_group_whose_calls_are_settled(gatherer, are_looked_up):
    barrier = Barrier()
    for position in range(3):
        gatherer.expect(call(f"r.1.{position}"), barrier)
    if are_looked_up:
        gatherer.look_up_all_soon()
    for position in range(3):
        gatherer.end(f"r.1.{position}", Returned(content="back"))
    gone = weakref.ref(barrier)
    del barrier
    gc.collect()
    assert gone() is None


async def test_results_that_could_not_be_dropped_are_dropped_later(gatherer, client, settings, store_result):
    await store_result("r.1.0", "recorded elsewhere")
    gatherer.forget(["r.1.0"])
    dropping = asyncio.create_task(gatherer.drop_forgotten())
    await asyncio.sleep(0)  # it has taken them, and no more
    dropping.cancel()
    await asyncio.wait([dropping])
    assert dropping.cancelled()
    await store_result("r.1.0", "recorded elsewhere")  # whether or not the command has left
    await gatherer.drop_forgotten()
    assert not await client.exists(settings.keys.result("r.1.0"))


@given(
    waits=st.lists(st.floats(0, 2 * LONGEST_S), max_size=50),
    looks=st.lists(st.floats(0, 3 * LONGEST_S), max_size=20),
)
def test_each_call_is_due_once_and_never_before_its_time(waits, looks):
    ticks: dict[str, int] = {}
    look_ups = LookUps(lambda call_id, tick: ticks[call_id] == tick)
    ticks |= {str(n): look_ups.put(str(n), wait) for n, wait in enumerate(waits)}
    seen: dict[str, float] = {}
    for now_s in [*sorted(looks), 10 * LONGEST_S]:
        for call_id in look_ups.due(now_s):
            assert call_id not in seen
            assert waits[int(call_id)] <= now_s
            seen[call_id] = now_s
        overdue = [wait for n, wait in enumerate(waits) if str(n) not in seen and wait + TICK_S <= now_s]
        assert not overdue
    assert len(seen) == len(waits)


class Id(str):
    """A call's id of which can be seen whether anybody keeps it."""

    __slots__ = ("__weakref__",)


def test_the_ids_of_calls_that_are_back_are_not_kept_until_their_time():
    waiting, looks = set(), 0

    def is_waited_for(call_id, _tick):
        nonlocal looks
        looks += 1
        return call_id in waiting

    look_ups, ids = LookUps(is_waited_for), weakref.WeakSet()
    for n in range(20 * THINNED_AFTER):
        call_id = Id(n)
        ids.add(call_id)
        if n % 100 == 0:
            waiting.add(call_id)  # the others are back at once
        look_ups.put(call_id, FIRST_S + n / 10_000)
    del call_id
    assert len(waiting) <= len(ids) <= len(waiting) + 2 * THINNED_AFTER
    assert looks <= 2 * 20 * THINNED_AFTER
    assert sorted(look_ups.due(LONGEST_S)) == sorted(waiting)


@given(age_s=st.floats(0, 1e6), waiting=st.integers(0, 10**7))
def test_a_call_is_looked_up_before_it_has_waited_twice_as_long_while_few_wait(age_s, waiting):
    wait = wait_s(age_s, waiting)
    assert wait >= FIRST_S
    assert waiting / wait <= max(LOOKS_PER_S, waiting / FIRST_S)
    if waiting <= LOOKS_PER_S * FIRST_S:
        assert wait <= max(age_s, FIRST_S)
        assert wait <= LONGEST_S


def test_three_hundred_thousand_waiting_calls_are_looked_up_no_oftener_than_a_thousand_a_second():
    assert 300_000 / wait_s(3600, 300_000) <= LOOKS_PER_S
    assert 300_000 / first_wait_s(300_000) <= LOOKS_PER_S


async def test_who_waits_for_room_gets_it_in_turn_and_a_cancelled_one_leaves_it_to_the_next():
    expected, barrier = ExpectedCalls(at_most=1), Barrier()
    expected.add(call("r.1.0"), barrier, since_s=0.0, look_tick=2)
    order = []

    async def enter(name: str) -> None:
        await expected.room()
        expected.add(call(name), barrier, since_s=0.0, look_tick=2)
        order.append(name)

    first, gone, second = (asyncio.create_task(enter(name)) for name in ("first", "gone", "second"))
    await asyncio.sleep(0)
    expected.pop("r.1.0")
    await first
    expected.pop("first")  # it is the turn of the one that is cancelled at the same moment
    gone.cancel()
    await second
    assert order == ["first", "second"]
    assert expected.is_full
    assert gone.cancelled()


async def test_what_is_expected_twice_takes_one_place():
    expected, barrier = ExpectedCalls(at_most=2), Barrier()
    for _ in range(2):
        expected.add(call("r.1.0"), barrier, since_s=0.0, look_tick=2)
    assert len(expected) == 1
    assert not expected.is_full
    assert expected.pop("r.1.0") is not None
    assert expected.pop("r.1.0") is None
