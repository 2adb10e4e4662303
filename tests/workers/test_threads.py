"""Blocking tools on threads: how many at a time, and what becomes of a call that has to wait for one."""

import asyncio
import threading
import time

import pytest

from toolfleet import Context, tool
from toolfleet.calls import Failed, FailureKind, Returned, ToolCall
from toolfleet.interceptors import Retry, TimeLimit
from toolfleet.workers.tool import threads as module
from toolfleet.workers.tool.execute import compensate, execute
from toolfleet.workers.tool.threads import FEW, ToolThreads
from toolfleet.workers.tool.time_limit import has_begun

WITHIN_S = 30.0
MANY = 100


class Computing:
    """Clocks by which threads always compute."""

    def __init__(self, for_s):
        pass

    def say_that_threads_compute(self):
        return True


@pytest.fixture
async def new_threads():
    made = []

    def new(most, when_none_is_left=lambda: None):
        made.append(ToolThreads(most, when_none_is_left))
        return made[-1]

    yield new
    for each in made:
        each.shutdown()


@pytest.fixture
def computing(monkeypatch):
    monkeypatch.setattr(module, "_Clocks", Computing)


def begin(threads, function, *arguments):
    return asyncio.create_task(threads.run(function, *arguments))


async def until(condition):
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_as_many_run_at_once_as_there_are_calls_while_they_wait(new_threads):
    threads, all_are_there = new_threads(MANY), threading.Barrier(MANY)
    await asyncio.gather(*(threads.run(all_are_there.wait, WITHIN_S) for _ in range(MANY)))


async def test_no_more_run_at_once_than_may(new_threads):
    threads, two_are_there = new_threads(2), threading.Barrier(2)
    running, most = [], []

    def meet():
        running.append(1)
        most.append(len(running))
        two_are_there.wait(WITHIN_S)
        running.pop()

    await asyncio.gather(*(threads.run(meet) for _ in range(20)))
    assert max(most) == 2


async def test_a_function_that_ends_an_iteration_has_failed_and_nobody_waits_for_it_for_ever(new_threads):
    with pytest.raises(RuntimeError, match="tool failed: StopIteration"):
        await asyncio.wait_for(new_threads(1).run(next, iter(())), WITHIN_S)


async def test_few_run_at_once_while_they_compute_and_each_has_its_turn(new_threads, computing):
    threads, go = new_threads(MANY), threading.Event()
    begun = []

    def compute(number):
        begun.append(number)
        go.wait(WITHIN_S)
        return number

    calls = [begin(threads, compute, number) for number in range(MANY)]
    await until(lambda: len(begun) == FEW)
    await asyncio.sleep(5 * module.LOOK_EVERY_S)
    assert len(begun) == FEW
    go.set()
    assert await asyncio.gather(*calls) == list(range(MANY))


async def test_a_thread_that_computes_is_told_from_one_that_waits():
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            sum(range(1000))

    async def is_seen_computing():
        clocks = module._Clocks(module.LOOK_EVERY_S)
        await asyncio.sleep(module.LOOK_EVERY_S)
        return clocks.say_that_threads_compute()

    async def is_found(wanted):
        async with asyncio.timeout(WITHIN_S):  # other processes may take this one's time, now and then
            while await is_seen_computing() is not wanted:
                pass

    waits, computes = threading.Thread(target=stop.wait), threading.Thread(target=compute)
    waits.start()
    await is_found(False)
    computes.start()
    await is_found(True)
    stop.set()
    waits.join()
    computes.join()


async def test_what_is_cancelled_while_it_waits_has_not_begun_and_leaves_its_place_to_others(new_threads, computing):
    threads, go = new_threads(1), threading.Event()
    ran = []
    first, second, third = begin(threads, go.wait), begin(threads, ran.append, 2), begin(threads, ran.append, 3)
    await asyncio.sleep(0.05)
    second.cancel()
    go.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert second.cancelled()
    assert ran == [3]
    assert await threads.run(lambda: "goes on") == "goes on"


async def test_what_is_cancelled_in_the_moment_of_its_turn_leaves_its_place_to_others(new_threads, computing):
    threads, go = new_threads(1), threading.Event()
    ran = []
    first, second, third = begin(threads, go.wait), begin(threads, ran.append, 2), begin(threads, ran.append, 3)
    await asyncio.sleep(0.05)
    first.add_done_callback(lambda _: second.cancel())  # its turn has come, and it has not heard of it
    go.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert ran in ([3], [2, 3])
    assert await threads.run(lambda: "goes on") == "goes on"


async def test_a_worker_that_stops_begins_with_none_that_waits(new_threads, computing):
    threads, go = new_threads(1), threading.Event()
    ran = []
    first, waiting = begin(threads, go.wait), begin(threads, ran.append, 2)
    await asyncio.sleep(0.05)
    threads.begin_no_more("shutdown")
    for late in (waiting, begin(threads, ran.append, 3)):
        with pytest.raises(asyncio.CancelledError, match="shutdown"):
            await late
    go.set()
    assert await first
    assert ran == []


async def test_threads_that_hang_are_counted_until_they_end_and_it_is_said_when_none_is_left(new_threads):
    told, go = [], threading.Event()
    threads = new_threads(2, lambda: told.append(threads.hanging))
    hanging = [begin(threads, go.wait) for _ in range(2)]
    await asyncio.sleep(0.05)
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert told == [2]
    waiting = begin(threads, lambda: "after all")
    go.set()
    assert await waiting == "after all"
    await until(lambda: threads.hanging == 0)
    assert told == [2]


async def test_threads_that_hang_keep_no_other_call_waiting(new_threads, computing):
    told, go = [], threading.Event()
    threads = new_threads(MANY, lambda: told.append(1))
    hanging = [begin(threads, go.wait) for _ in range(FEW)]
    await asyncio.sleep(0.05)
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert threads.hanging == FEW
    assert await asyncio.wait_for(threads.run(lambda: "goes on"), WITHIN_S) == "goes on"
    go.set()
    assert told == []


@pytest.mark.parametrize("compute", [True, False], ids=["computing", "waiting"])
async def test_many_that_hang_are_told_of_if_they_compute(new_threads, monkeypatch, compute):
    monkeypatch.setattr(module, "HANGING_LOOKED_AT_S", 0.05)
    monkeypatch.setattr(Computing, "say_that_threads_compute", lambda _: compute)
    monkeypatch.setattr(module, "_Clocks", Computing)
    told, go, begun = asyncio.Event(), threading.Event(), []
    threads = new_threads(2 * module.MANY_HANG, told.set)

    def hang():
        begun.append(1)
        go.wait()

    for _ in range(module.MANY_HANG // FEW):
        hanging = [begin(threads, hang) for _ in range(FEW)]
        await until(lambda: len(begun) == threads.hanging + FEW)
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
    if compute:
        await asyncio.wait_for(told.wait(), WITHIN_S)
    else:
        await asyncio.sleep(0.2)
        assert not told.is_set()
    go.set()


@pytest.fixture
def refused(monkeypatch):
    """The system gives three threads at most, as long as this is not empty."""
    refusing, begun, start = [True], [], threading.Thread.start

    def refuse(thread):
        if refusing and sum(each.is_alive() for each in begun) == 3:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refusing


async def test_where_the_system_gives_no_more_threads_those_that_are_there_take_all_calls(new_threads, refused):
    threads = new_threads(MANY)
    answers = await asyncio.gather(*(threads.run(pow, number, 2) for number in range(MANY)))
    assert answers == [number**2 for number in range(MANY)]
    assert threads.most == 3


async def test_more_threads_are_asked_for_again_after_a_while(new_threads, refused, monkeypatch):
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    threads, go = new_threads(MANY), threading.Event()
    calls = [begin(threads, go.wait) for _ in range(4)]
    await until(lambda: threads.most == 3)
    refused.clear()
    await until(lambda: threads.most == MANY)
    go.set()
    await asyncio.gather(*calls)
    all_are_there = threading.Barrier(FEW)
    await asyncio.gather(*(threads.run(all_are_there.wait, WITHIN_S) for _ in range(FEW)))


async def test_it_is_said_that_none_is_left_where_all_that_there_are_hang(new_threads, refused):
    told, go = asyncio.Event(), threading.Event()
    threads = new_threads(MANY, told.set)
    hanging = [begin(threads, go.wait) for _ in range(3)]
    await asyncio.sleep(0.05)
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert not told.is_set()
    waiting = begin(threads, lambda: "after all")
    await asyncio.wait_for(told.wait(), WITHIN_S)
    go.set()
    assert await waiting == "after all"


async def test_threads_that_were_added_end_when_there_has_been_nothing_to_do_for_a_while(new_threads, monkeypatch):
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    before, there = set(threading.enumerate()), []
    all_are_there = threading.Barrier(MANY, action=lambda: there.extend(threading.enumerate()))
    threads = new_threads(MANY)
    await asyncio.gather(*(threads.run(all_are_there.wait, WITHIN_S) for _ in range(MANY)))
    added = set(there) - before
    assert len(added) >= MANY
    await until(lambda: not any(thread.is_alive() for thread in added))
    assert await threads.run(lambda: "goes on") == "goes on"


# --- calls -----------------------------------------------------------------------------------------------------------


def called(name, seconds=60.0):
    return ToolCall(
        call_id="r.1.0", run_id="r", tool=name, arguments="{}", deadline_unix_s=time.time() + seconds, reply_to="o"
    )


async def executed(declared, threads, *, seconds=60.0, interceptors=()):
    call = called(declared.spec.name, seconds)
    return await execute(call, declared, Context.of(call), threads=threads, interceptors=interceptors)


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pays(ran):
    @tool(blocking="thread", timeout_s=0.3)
    def pays() -> str:
        ran.append(1)
        return "paid"

    return pays


@pytest.fixture
async def busy(new_threads, computing):
    """One thread, which is taken until `go` is set."""
    threads, go = new_threads(1), threading.Event()
    holding = begin(threads, go.wait)
    await asyncio.sleep(0.05)
    threads.go = go
    yield threads
    go.set()
    await holding


@pytest.mark.parametrize("interceptors", [(), (Retry(1),)], ids=["alone", "intercepted"])
async def test_a_tools_time_begins_when_a_thread_has_taken_it(busy, pays, ran, interceptors):
    waiting = asyncio.create_task(executed(pays, busy, interceptors=interceptors))
    await asyncio.sleep(2 * pays.spec.timeout_s)
    assert ran == []
    busy.go.set()
    assert await waiting == Returned(content="paid")


async def test_a_tools_time_is_up_as_ever_once_a_thread_has_taken_it(busy, new_threads):
    ends = threading.Event()

    @tool(blocking="thread", timeout_s=0.2)
    def hangs() -> None:
        ends.wait(WITHIN_S)

    waiting = asyncio.create_task(executed(hangs, busy))
    await asyncio.sleep(0.4)
    busy.go.set()
    result = await asyncio.wait_for(waiting, WITHIN_S)
    ends.set()
    assert result.kind is FailureKind.TIMED_OUT
    assert result.message.startswith("hangs did not finish within 0.2 s. Its thread cannot be stopped")


async def test_a_call_whose_deadline_passes_while_it_waits_is_told_to_have_had_no_effect(busy, pays, ran):
    assert await executed(pays, busy, seconds=0.2) == Failed(
        kind=FailureKind.EXPIRED, message="pays did not start before its deadline; it has had no effect."
    )
    busy.go.set()
    await asyncio.sleep(0.05)
    assert ran == []


async def test_a_call_that_is_cancelled_in_its_second_try_has_begun(new_threads, ran):
    threads, go, loop, holding = new_threads(1), threading.Event(), asyncio.get_running_loop(), []

    @tool(blocking="thread", interceptors=[Retry(1, OSError, wait_s=0, max_wait_s=0)])
    def breaks() -> None:
        ran.append(1)
        # Behind the first try, before the second.
        asyncio.run_coroutine_threadsafe(holds(), loop).result()
        raise OSError

    async def holds():
        holding.append(begin(threads, go.wait))
        await asyncio.sleep(0)

    call = called("breaks")
    context = Context.of(call)
    calling = asyncio.create_task(execute(call, breaks, context, threads=threads))
    await until(lambda: holding and threads._waiting)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert has_begun(context)
    go.set()
    await holding[0]
    assert ran == [1]


async def shielded(call, proceed):
    return await asyncio.shield(asyncio.ensure_future(proceed(call)))


@pytest.mark.parametrize("interceptors", [(), (Retry(1),), (shielded,)], ids=["alone", "retried", "shielded"])
async def test_a_call_that_waits_when_its_worker_stops_has_not_begun(busy, pays, ran, interceptors):
    call = called("pays")
    context = Context.of(call)
    waiting = asyncio.create_task(execute(call, pays, context, threads=busy, interceptors=interceptors))
    await asyncio.sleep(0.1)
    busy.begin_no_more("shutdown")
    with pytest.raises(asyncio.CancelledError, match="shutdown"):
        await waiting
    assert not has_begun(context)
    assert ran == []


async def test_a_limit_that_an_interceptor_sets_holds_while_a_call_waits(busy, pays, ran):
    result = await executed(pays, busy, interceptors=(TimeLimit(0.2),))
    assert result.kind is FailureKind.TIMED_OUT
    busy.go.set()
    await asyncio.sleep(0.05)
    assert ran == []


async def test_two_tries_at_once_that_wait_leave_the_tool_its_limit(new_threads, computing):
    threads, go = new_threads(1), threading.Event()
    holding = begin(threads, go.wait)

    async def hedged(call, proceed):
        _, second = await asyncio.gather(proceed(call), proceed(call))
        return second

    @tool(blocking="thread", timeout_s=0.2, read_only=True)
    def hangs() -> None:
        ends.wait(WITHIN_S)

    ends = threading.Event()
    calling = asyncio.create_task(executed(hangs, threads, interceptors=(hedged,)))
    await asyncio.sleep(0.4)
    go.set()
    result = await asyncio.wait_for(calling, WITHIN_S)
    ends.set()
    await holding
    assert result.kind is FailureKind.TIMED_OUT


async def test_a_compensation_whose_deadline_passes_while_it_waits_has_had_no_effect(busy, ran):
    @tool(blocking="thread")
    def pays() -> str:
        return "paid"

    @pays.compensate
    def takes_back(call, result, ctx) -> str:
        ran.append(1)
        return "back"

    call = called("pays", 0.2).model_copy(update={"undoes": Returned(content="paid")})
    result = await compensate(call, pays, Context.of(call), threads=busy)
    assert result.kind is FailureKind.EXPIRED
    busy.go.set()
    await asyncio.sleep(0.05)
    assert ran == []
