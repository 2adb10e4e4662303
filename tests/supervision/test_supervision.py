"""What a process begins for itself never ends unseen."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from toolfleet.supervision import Errands, Supervisor, failures, run_errand, start_thread

WAIT_S = 10


class Reader:
    """Work that fails as often as it is told, then waits."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.begun = 0
        self.reads = asyncio.Event()

    async def read(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        self.reads.set()
        await asyncio.Event().wait()


async def until(condition) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("error", [ValueError("odd bytes"), asyncio.CancelledError("its own")], ids=repr)
async def test_a_task_that_fails_begins_again_and_is_ailing_until_it_has_run_for_a_moment(error, caplog):
    supervisor, reader = Supervisor(), Reader(error)
    before = failures().get("reader", 0)
    with caplog.at_level(logging.ERROR, "toolfleet"):
        kept = supervisor.keep("reader", reader.read)
        await until(lambda: supervisor.ailing)
        [said] = supervisor.ailing.values()
        assert type(error).__name__ in said
        async with asyncio.timeout(WAIT_S):
            await reader.reads.wait()
        await until(lambda: not supervisor.ailing)
    assert reader.begun == 2
    assert failures()["reader"] == before + 1
    [record] = [record for record in caplog.records if record.event == "task_failed"]
    assert record.exc_info is not None
    await kept.aclose()


async def test_what_fails_again_and_again_stays_ailing_and_has_its_stack_in_the_log_once(caplog):
    supervisor, reader = Supervisor(), Reader(*(ValueError("the same") for _ in range(4)))
    with caplog.at_level(logging.ERROR, "toolfleet"):
        kept = supervisor.keep("reader", reader.read)
        while not reader.reads.is_set():
            await asyncio.sleep(0.01)
            assert reader.begun < 2 or reader.reads.is_set() or supervisor.ailing
    told = [record for record in caplog.records if record.event == "task_failed"]
    assert [record.exc_info is not None for record in told] == [True, False, False, False]
    await kept.aclose()
    assert not supervisor.ailing


async def test_a_task_that_swallows_a_cancellation_is_cancelled_until_it_ends():
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    kept = Supervisor().keep("stubborn", stubborn)
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        await kept.aclose()
    assert swallowed == 2


async def test_an_errand_that_fails_is_counted_and_raises_nowhere():
    before = failures().get("errand", 0)

    async def fail() -> None:
        raise LookupError("nobody awaits it")

    task = run_errand("errand", fail())
    del task
    gc.collect()
    await until(lambda: failures().get("errand", 0) == before + 1)


async def test_errands_are_let_end_for_a_moment_and_stopped_then():
    ended = []

    async def last(seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(seconds)

    errands = Errands("errand")
    errands.run(last(0.05))
    errands.run(last(60))
    async with asyncio.timeout(WAIT_S):
        await errands.aclose(within_s=0.5)
    assert ended == [0.05, 60]


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)], ids=repr)
def test_a_thread_that_fails_begins_again(error):
    errors, done = [error], threading.Event()

    def work(word: str) -> None:
        if errors:
            raise errors.pop()
        if word == "given":
            done.set()

    thread = start_thread("thread", work, "given")
    assert done.wait(WAIT_S)
    thread.join(WAIT_S)
    assert not thread.is_alive()
