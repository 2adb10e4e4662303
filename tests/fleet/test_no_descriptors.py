"""A process that has no file descriptors left when its connection to Redis is lost: it waits, and nothing is lost."""

import asyncio
import resource
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from fleets import asking, fleet_of
from processes import WAIT_S, alive, cut_connections

from toolfleet.orchestrator import Orchestrator

AWAY_S = 4.0
"""Longer than a lease."""

NONE = 3
"""A limit that standard input, output and error use up: what is open stays open, and nothing can be opened."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of("--concurrency", "4", pools={"io": 1, "cpu": 1}, lease_s=3, heartbeat_s=0.5) as running:
        yield running


@contextmanager
def no_descriptors(*pids):
    usual = {pid: psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE) for pid in pids}
    for pid, (_, hard) in usual.items():
        psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE, (NONE, hard))
    try:
        yield
    finally:
        for pid, limits in usual.items():
            psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE, limits)


async def until_its_lease_is_kept(worker):
    """Wait until the process that keeps the lease is connected: one that has yet to open its own modules cannot."""
    async with asyncio.timeout(WAIT_S):
        while not any(is_connected_keeper(child) for child in psutil.Process(worker.pid).children()):
            await asyncio.sleep(0.05)  # it tells nobody


def is_connected_keeper(process):
    return "lease_keeper.py" in " ".join(process.cmdline()) and bool(process.net_connections("unix"))


@pytest.mark.parametrize(
    ("pool", "tool", "ordinary"),
    [("io", "play_once", "echo"), ("cpu", "play_in_process_once", "blocking_echo")],
)
async def test_a_worker_without_descriptors_goes_on_when_there_are_some(fleet, stage, pool, tool, ordinary):
    [worker] = alive(fleet, pool)
    await until_its_lease_is_kept(worker)
    family = [worker.pid, *(child.pid for child in psutil.Process(worker.pid).children(recursive=True))]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(orchestrator.execute(asking((tool, {"stage": stage.path}))))
        actor = await stage.enters()
        with no_descriptors(*family):
            cut_connections(fleet)
            actor.returns("played")
            assert await actor.leaves() == "returned"
            await asyncio.sleep(AWAY_S)
            assert worker.process.poll() is None
        [answer] = await asyncio.wait_for(answering, WAIT_S)
        assert answer.content == "played"
        answers = await orchestrator.execute(asking(*((ordinary, {"value": n}) for n in range(20))))
        assert [answer.content for answer in answers] == [str(n) for n in range(20)]
    assert len(stage.actors) == 1
    assert alive(fleet, pool) == [worker]
    said = Path(worker.log_path).read_text()
    assert said.count('"event": "out_of_file_descriptors"') == 1
    assert "Traceback" not in said
