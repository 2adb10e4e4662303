"""A tool's time limit does what `asyncio.timeout` does, and may be set late."""

import asyncio

import pytest

from toolfleet.workers.tool.time_limit import TimeLimit

LONG_S = 60.0


async def swallow():
    try:
        await asyncio.sleep(LONG_S)
    except asyncio.CancelledError:
        return "kept on"


async def raise_another():
    try:
        await asyncio.sleep(LONG_S)
    except asyncio.CancelledError:
        raise LookupError("as it was cancelled") from None


async def own_timeout():
    raise TimeoutError("its own")


async def cancelled_by_itself():
    raise asyncio.CancelledError


async def cancelled_from_outside():
    asyncio.current_task().cancel("from outside")
    await asyncio.sleep(LONG_S)


async def cancelled_when_time_is_up():
    asyncio.current_task().cancel("from outside")
    await swallow()
    await asyncio.sleep(0.05)


async def outcome_below(limit, work):
    """What comes of work below a limit, what the task is asked for afterwards, and whether the time was up."""
    task = asyncio.current_task()
    try:
        if isinstance(limit, TimeLimit):
            with limit:
                found = await work()
        else:
            async with limit:
                found = await work()
    except BaseException as error:  # noqa: BLE001  # compared
        found = type(error), str(error), type(error.__cause__)
    asked, expired = task.cancelling(), limit.expired if isinstance(limit, TimeLimit) else limit.expired()
    while task.cancelling():
        task.uncancel()
    return found, asked, expired


WORK = [
    lambda: asyncio.sleep(0, "done"),
    lambda: asyncio.sleep(LONG_S),
    swallow,
    raise_another,
    own_timeout,
    cancelled_by_itself,
    cancelled_from_outside,
    cancelled_when_time_is_up,
]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_a_limit_ends_work_as_asyncio_does(work, seconds):
    ours = await asyncio.create_task(outcome_below(TimeLimit(seconds), work))
    theirs = await asyncio.create_task(outcome_below(asyncio.timeout(seconds), work))

    assert ours == theirs


@pytest.mark.parametrize("is_begun", [True, False], ids=["while it runs", "before it runs"])
async def test_a_limit_that_is_set_late_binds(is_begun):
    limit = TimeLimit(LONG_S, is_set=False)
    assert not limit.is_set
    if is_begun:
        asyncio.get_running_loop().call_soon(limit.set, 0.01)
    else:
        limit.set(0.01)

    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(LONG_S)

    assert limit.expired


async def test_a_limit_that_is_set_when_all_is_over_disturbs_nobody():
    limit = TimeLimit(LONG_S, is_set=False)
    with limit:
        await asyncio.sleep(0)

    limit.set(0.0)
    await asyncio.sleep(0.01)

    assert not limit.expired
    assert not asyncio.current_task().cancelling()


async def test_of_two_limits_the_shorter_one_binds():
    inner, outer = TimeLimit(LONG_S), TimeLimit(0.01)
    with pytest.raises(TimeoutError), outer, inner:
        await asyncio.sleep(LONG_S)

    assert outer.expired
    assert not inner.expired
