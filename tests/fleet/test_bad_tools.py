"""Tools that end, stop or block the event loop they share with others: the worker goes on, or is replaced."""

import asyncio
import threading
from pathlib import Path

import pytest
from fleets import HERE, asking
from processes import WAIT_S, alive, lines, replenish

from toolfleet.local.fleet import LocalFleet
from toolfleet.local.supervisor import Supervisor
from toolfleet.orchestrator import Orchestrator

BLOCKED_S = 2.0
CONCURRENCY = 40


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["bad_tools"],
        pools={"io": 1},
        environment=HERE,
        worker_options=["--concurrency", str(CONCURRENCY)],
        blocked_loop_s=BLOCKED_S,
    ) as running:
        yield running


@pytest.fixture
async def orchestrator(fleet):
    await asyncio.to_thread(replenish, fleet, io=1)
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


async def serves(orchestrator, count=100):
    answers = await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(count))))
    return [answer.content for answer in answers] == [str(n) for n in range(count)]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("leaves_in_a_task", "still here, True"),
        ("leaves_in_a_group", "a tool's own end"),
        ("leaves_in_a_callback", "still here"),
        ("interrupts_in_a_task", "still here, True"),
        ("stops_the_loop", "still here"),
        ("unspeakable", "tool failed: UnspeakableError"),
        ("stops_an_iteration", "tool failed: StopIteration"),
    ],
)
async def test_a_tool_cannot_end_its_worker_from_inside(fleet, orchestrator, tool, said):
    [worker] = alive(fleet, "io")
    [answer] = await asyncio.wait_for(orchestrator.execute(asking((tool, {}))), WAIT_S)
    assert answer.content == said
    assert await asyncio.wait_for(serves(orchestrator), WAIT_S)
    assert alive(fleet, "io") == [worker]


async def test_a_coroutine_that_never_gives_the_loop_back_is_told_and_its_worker_replaced(
    fleet, orchestrator, tmp_path
):
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    [worker] = alive(fleet, "io")
    neighbour = asyncio.create_task(orchestrator.execute(asking(("waits", {"path": str(go)}))))
    assert await serves(orchestrator)
    blocking = asyncio.create_task(orchestrator.execute(asking(("blocks_for_ever", {"path": str(ledger)}))))
    [told] = await asyncio.wait_for(blocking, WAIT_S)
    assert told.content == (
        "blocks_for_ever blocked its worker for 2 s and was ended with it. Its effect may or may not have happened."
    )
    await asyncio.to_thread(worker.process.wait, WAIT_S)
    log = Path(worker.log_path).read_text()
    assert "in blocks_for_ever" in log
    assert "worker_blocked" in log
    await asyncio.to_thread(replenish, fleet, io=1)
    go.touch()
    [answer] = await asyncio.wait_for(neighbour, WAIT_S)
    assert answer.content == "waited"
    assert lines(ledger) == ["begun"]


async def test_a_worker_whose_threads_all_hang_is_replaced_once_its_healthy_calls_have_ended(
    fleet, orchestrator, tmp_path
):
    go = tmp_path / "go"
    [worker] = alive(fleet, "io")
    healthy = asyncio.create_task(orchestrator.execute(asking(("waits", {"path": str(go)}))))
    told = await asyncio.wait_for(orchestrator.execute(asking(*[("hangs", {})] * CONCURRENCY)), WAIT_S)
    assert {answer.content for answer in told} == {
        "hangs did not finish within 0.5 s. Its thread cannot be stopped and may still be at work."
    }
    assert worker.process.poll() is None
    go.touch()
    [answer] = await asyncio.wait_for(healthy, WAIT_S)
    assert answer.content == "waited"
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) != 0
    assert "worker_out_of_threads" in Path(worker.log_path).read_text()
    await asyncio.to_thread(replenish, fleet, io=1)
    assert await serves(orchestrator)


async def test_a_blocking_tool_that_outlives_its_limit_is_told_as_one_that_may_go_on(orchestrator, tmp_path):
    file = tmp_path / "late"
    [told] = await orchestrator.execute(asking(("writes_late", {"path": str(file)})))
    assert told.content == (
        "writes_late did not finish within 0.5 s. Its thread cannot be stopped and may still be at work: "
        "its effect may or may not happen."
    )
    async with asyncio.timeout(WAIT_S):
        while not file.exists():
            await asyncio.sleep(0.05)


async def test_a_call_that_kills_every_worker_takes_no_other_call_with_it(fleet, orchestrator):
    ended = threading.Event()
    supervisor = Supervisor(fleet, first_pause_s=0.05)
    restarts = []

    def supervise():
        while not ended.wait(0.05):
            restarts.extend(supervisor.look()[1])

    supervising = asyncio.create_task(asyncio.to_thread(supervise))
    others = [("takes_a_moment", {"seconds": 1.5})] * 8
    try:
        killer, *answers = await asyncio.wait_for(orchestrator.execute(asking(("kills_its_worker", {}), *others)), 90)
    finally:
        ended.set()
        await supervising
    assert killer.content == (
        "kills_its_worker crashed: the worker was lost in each of 5 attempts. Do not repeat the same call."
    )
    assert [answer.content for answer in answers] == ["done"] * len(others)
    assert len(restarts) >= 5
