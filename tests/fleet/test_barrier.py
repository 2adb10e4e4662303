"""The wait for a moment, before calls are written down as sent."""

import asyncio

import pytest

from toolfleet.calls import Returned
from toolfleet.errors import BrokerUnreachable
from toolfleet.orchestrator.fleet.barrier import Barrier

RESULT = Returned(content="1")
LONG_S = 60.0


async def test_whoever_waits_for_a_moment_goes_on_as_soon_as_all_is_back():
    barrier = Barrier()
    for call_id in ("r.1.0", "r.1.1"):
        barrier.add(call_id)
        asyncio.get_running_loop().call_soon(barrier.arrive, call_id, "t", RESULT)
    async with asyncio.timeout(LONG_S / 2):
        assert await barrier.is_complete_within(LONG_S)
        assert await barrier.is_complete_within(LONG_S)  # it stays so
        await barrier.wait()
    assert barrier.results == {"r.1.0": RESULT, "r.1.1": RESULT}


async def test_when_the_moment_is_over_the_rest_is_still_waited_for():
    barrier = Barrier()
    barrier.add("r.1.0")
    assert not await barrier.is_complete_within(0.0)
    waiting = asyncio.create_task(barrier.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    barrier.arrive("r.1.0", "t", RESULT)
    await waiting


async def test_a_slow_call_is_not_back():
    barrier = Barrier()
    barrier.add("r.1.0")
    asyncio.get_running_loop().call_soon(barrier.lose_patience, ["r.1.0"])
    assert not await barrier.is_complete_within(LONG_S)


@pytest.mark.parametrize("moment_s", [0.0, LONG_S])
async def test_what_has_kept_a_call_from_being_sent_is_raised_by_the_wait_alone(moment_s):
    barrier = Barrier()
    barrier.add("r.1.0")
    asyncio.get_running_loop().call_later(0.01, barrier.fail, BrokerUnreachable("away"))
    assert not await barrier.is_complete_within(moment_s)
    with pytest.raises(BrokerUnreachable, match="away"):
        await barrier.wait()


async def test_a_result_in_the_tick_in_which_the_moment_ends_is_no_error():
    told = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    for _ in range(200):
        barrier = Barrier()
        barrier.add("r.1.0")
        waiting = asyncio.create_task(barrier.is_complete_within(0.001))
        await asyncio.sleep(0)
        loop.call_later(0.001, barrier.arrive, "r.1.0", "t", RESULT)
        await waiting
        await barrier.wait()
    assert told == []
