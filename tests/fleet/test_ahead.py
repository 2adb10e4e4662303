"""Calls that a worker takes while its processes are at others: quick ones, and none waits there behind a slow one."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fleets import HERE, asking
from processes import WAIT_S, kill, lines, until_announced, until_there

from toolfleet import LocalFleet
from toolfleet.broker import celery_app
from toolfleet.connections import connect
from toolfleet.orchestrator import Orchestrator
from toolfleet.streams import GROUP, Priority

QUICK = 60
"""As many as one worker takes ahead."""


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "with another"])
def fleet(request):
    with LocalFleet(
        ["process_tools"], pools={"cpu": request.param}, environment=HERE, worker_options=["--concurrency", "1"]
    ) as running:
        yield running


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that stands still meanwhile, while its children go on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def notes(path, count):
    return [("note", {"path": str(path), "mark": f"quick {n}"}) for n in range(count)]


async def test_what_a_worker_took_ahead_of_a_slow_call_is_done_by_another_one_and_once(fleet, tmp_path):
    workers = len(fleet.workers)
    path, slow = tmp_path / "ledger", tmp_path / "slow"
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        for _ in range(2):  # so that the workers know how quick these are
            await orchestrator.execute(asking(*notes(tmp_path / "before", 4 * QUICK)))
        slow_call = ("note_when_let", {"path": str(slow), "mark": "slow"})
        quick = notes(path, 12 * QUICK)
        mixed = [*quick[:QUICK], slow_call, *quick[QUICK:]]
        answering = asyncio.create_task(orchestrator.execute(asking(*mixed)))
        await until_there(Path(f"{slow}.begun"))
        if workers > 1:
            async with asyncio.timeout(WAIT_S):
                while len(lines(path)) < len(quick):
                    await asyncio.sleep(0.01)
        assert lines(slow) == []
        Path(f"{slow}.let").touch()
        answers = await answering
    assert [answer.content for answer in answers] == [given["mark"] for _, given in mixed]
    assert sorted(lines(path)) == sorted(given["mark"] for _, given in quick)
    assert lines(slow) == ["slow"]


async def test_what_a_frozen_worker_had_taken_ahead_has_no_effect_after_it_was_given_up(tmp_path):
    path, slow = tmp_path / "ledger", tmp_path / "slow"
    slow_call = ("note_when_let", {"path": str(slow), "mark": "slow"})
    quick = notes(path, 4 * QUICK)
    settings = {"lease_s": 3, "heartbeat_s": 0.5, "call_timeout_s": WAIT_S}
    with LocalFleet(
        ["process_tools"], pools={"cpu": 1}, environment=HERE, worker_options=["--concurrency", "1"], **settings
    ) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            await orchestrator.execute(asking(*notes(tmp_path / "before", 4 * QUICK)))
            answering = asyncio.create_task(orchestrator.execute(asking(slow_call, *quick)))
            await until_there(Path(f"{slow}.begun"))
            [worker] = fleet.workers
            with stopped(worker.pid):
                # What has waited in it is known to be nobody's: some of it may have begun, for all that others know.
                other = await asyncio.to_thread(fleet.start_worker, "cpu", "--concurrency", "1")
                answers = await answering
                assert other.is_running
                done = lines(path)
                Path(f"{slow}.let").touch()
                await until_there(slow)  # so that its child is free as soon as it goes on
            await orchestrator.execute(asking(*notes(tmp_path / "after", 2 * QUICK)))
    doubtful = [answer for answer in answers[1:] if "may or may not have happened" in answer.content]
    assert doubtful
    assert len(done) + len(doubtful) == len(quick)
    assert lines(path) == done


async def test_a_call_that_is_cancelled_while_it_waits_for_its_second_attempt_may_have_had_its_effect(tmp_path):
    lost, busy = tmp_path / "lost", tmp_path / "busy"
    settings = {"lease_s": 3, "heartbeat_s": 0.5, "call_timeout_s": 10 * WAIT_S}
    with LocalFleet(["process_tools"], pools={"cpu": 0}, environment=HERE, **settings) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:

            async def begun(path):
                call = ("note_when_let", {"path": str(path), "mark": path.name})
                answering = asyncio.create_task(orchestrator.execute(asking(call)))
                await until_there(Path(f"{path}.begun"))
                return answering

            first = await asyncio.to_thread(started, fleet)
            answering = await begun(lost)
            await asyncio.to_thread(started, fleet, "--instrument", "waits_ahead")
            await orchestrator.execute(asking(*notes(tmp_path / "before", 4 * QUICK)))  # so that it takes ahead
            others = await begun(busy)
            kill(first)
            call_id = await asyncio.to_thread(oldest_once_all_are_one_workers, fleet)
            celery_app(fleet.settings).control.revoke(call_id, terminate=True)
            [answer] = await answering
            Path(f"{busy}.let").touch()
            [other] = await others
    assert answer.content == "note_when_let was cancelled. Its effect may or may not have happened."
    assert other.content == "busy"
    assert lines(lost) == []


def started(fleet, *options):
    worker = fleet.start_worker("cpu", "--concurrency", "1", *options)
    until_announced(fleet, worker)
    return worker


def oldest_once_all_are_one_workers(fleet):
    """Return the id of the call that was sent first, once one worker has both."""
    stream, give_up = fleet.settings.keys.queue("cpu", Priority.NORMAL), time.monotonic() + WAIT_S
    with connect(fleet.settings) as client:
        while True:
            held = client.xpending_range(stream, GROUP, "-", "+", 10)
            if len(held) == 2 and len({entry["consumer"] for entry in held}) == 1:
                [(_, fields)] = client.xrange(stream, held[0]["message_id"], held[0]["message_id"])
                return fields[b"id"].decode()
            assert time.monotonic() < give_up
            time.sleep(0.05)
