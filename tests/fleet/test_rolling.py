"""All workers are exchanged, or some are taken away, while calls run that must not be repeated: a ledger judges.

`ROLLING_JOB_S=300` gives the job of the rolling restart the length that the row has.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest
from fleets import HERE, asking
from processes import WAIT_S, alive, ask_to_stop, lines, until_announced

from toolfleet.local.fleet import LocalFleet

JOB_S = float(os.environ.get("ROLLING_JOB_S", "0"))
"""How long the job takes at least; it never ends before every worker has been asked to stop."""

GRACE_S = 600.0
CONVERSATIONS = 4


class Ledger:
    """What was done, by whom: told by the tools themselves, and by nobody in between."""

    def __init__(self, path):
        self.path = path

    @property
    def entries(self):
        """Worker's pid and word of each effect, in order."""
        return [(int(pid), what) for pid, what in (line.split(" ", 1) for line in lines(self.path))]

    def who_did(self, what):
        return [pid for pid, done in self.entries if done == what]

    async def until(self, *whats):
        async with asyncio.timeout(WAIT_S):
            while not all(self.who_did(what) for what in whats):
                await asyncio.sleep(0.02)


class Load:
    """Conversations that go on asking for effects until it is enough."""

    def __init__(self, orchestrator, ledger):
        self.orchestrator = orchestrator
        self.ledger = ledger
        self.asked = []
        self.is_enough = False

    async def converse(self):
        while not self.is_enough:
            words = [f"n{len(self.asked) + each}" for each in range(5)]
            self.asked += words
            tools = ["note", "note", "note", "note_in_process", "note_in_process"]
            answers = await perform(self.orchestrator, self.ledger, *zip(tools, words, strict=True))
            assert answers == [f"noted {word}" for word in words]


async def perform(orchestrator, ledger, *calls, **options):
    asked = asking(*((tool, {"ledger": str(ledger.path), "what": what, **options}) for tool, what in calls))
    return [message.content for message in await orchestrator.execute(asked)]


def fleet_with(**pools):
    return LocalFleet(["rolling_tools"], pools=pools, environment=HERE, shutdown_grace_s=GRACE_S)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


@pytest.mark.timeout(240 + 2 * JOB_S)
async def test_D6_a_rolling_restart_of_everything_ends_a_job_once_and_loses_and_repeats_nothing(
    ledger, tmp_path, orchestrators_of
):
    go = tmp_path / "go"
    with fleet_with(io=2, cpu=1, long=1) as fleet:
        orchestrator = await orchestrators_of(fleet)
        load = Load(orchestrator, ledger)
        conversing = [asyncio.create_task(load.converse()) for _ in range(CONVERSATIONS)]
        job = asyncio.create_task(perform(orchestrator, ledger, ("job", "slow"), seconds=JOB_S, until=str(go)))
        await ledger.until("begin slow")

        with_the_job = None
        for pool in ("long", "io", "cpu"):
            for old in alive(fleet, pool):
                new = fleet.start_worker(pool)
                await asyncio.to_thread(until_announced, fleet, new)
                ask_to_stop(old)
                if pool == "long":
                    with_the_job = old
                else:
                    assert await asyncio.to_thread(old.process.wait, WAIT_S) == 0
        load.is_enough = True
        await asyncio.gather(*conversing)
        assert with_the_job.is_running

        quick = [f"quick {each}" for each in range(4)]
        assert await perform(orchestrator, ledger, *(("job", what) for what in quick)) == [f"done {q}" for q in quick]
        assert not any(pid == with_the_job.pid for q in quick for pid in ledger.who_did(f"end {q}"))

        go.touch()
        assert await job == ["done slow"]
        assert await asyncio.to_thread(with_the_job.process.wait, WAIT_S) == 0
        assert ledger.who_did("begin slow") == ledger.who_did("end slow") == [with_the_job.pid]

    effects = Counter(what for _, what in ledger.entries if what.startswith("n"))
    assert effects == dict.fromkeys(load.asked, 1)
    assert len({pid for pid, _ in ledger.entries}) == 8  # every worker, the old and the new, had some


async def test_D5_workers_are_taken_away_the_idle_go_and_the_busy_end_what_they_have(
    ledger, tmp_path, orchestrators_of
):
    go = tmp_path / "go"
    busy_with = [f"job {each}" for each in range(3)]
    fleet = LocalFleet(
        ["rolling_tools"],
        pools={"long": 10},
        environment=HERE,
        worker_options=["--concurrency", "1"],
        shutdown_grace_s=GRACE_S,
    )
    with fleet:
        orchestrator = await orchestrators_of(fleet)
        jobs = asyncio.create_task(perform(orchestrator, ledger, *(("job", what) for what in busy_with), until=str(go)))
        await ledger.until(*(f"begin {what}" for what in busy_with))
        pids = {pid for pid, _ in ledger.entries}
        busy = [worker for worker in fleet.workers if worker.pid in pids]
        idle = [worker for worker in fleet.workers if worker.pid not in pids]
        assert len(busy) == 3

        for worker in busy + idle[:4]:  # as an autoscaler takes them, which asks nobody who is busy
            ask_to_stop(worker)
        for worker in idle[:4]:
            assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
        assert all(worker.is_running for worker in busy)
        assert await perform(orchestrator, ledger, ("job", "a later one")) == ["done a later one"]
        assert ledger.who_did("end a later one")[0] in {worker.pid for worker in idle[4:]}

        go.touch()
        assert await jobs == [f"done {what}" for what in busy_with]
        for worker in busy:
            assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    assert Counter(what for _, what in ledger.entries if what.startswith("end job")) == dict.fromkeys(
        (f"end {what}" for what in busy_with), 1
    )
