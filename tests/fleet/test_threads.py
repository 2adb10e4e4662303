"""Blocking tools on the threads of a real worker, in numbers."""

import asyncio

from fleets import HERE, asking
from processes import WAIT_S, ask_to_stop, lines, until_announced
from threaded_tools import MANY

from toolfleet.exit_status import ExitStatus
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator


async def test_a_worker_runs_as_many_blocking_calls_at_once_as_wait():
    with LocalFleet(["threaded_tools"], pools={"io": 1}, environment=HERE) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            answers = await orchestrator.execute(asking(*[("meets", {})] * MANY))
    assert {answer.content for answer in answers} == {"met"}


async def test_calls_that_wait_for_a_thread_go_to_another_worker_when_theirs_stops_and_run_once(tmp_path):
    ledger, go, forever = tmp_path / "ledger", tmp_path / "go", {"until": str(tmp_path / "never")}
    with LocalFleet(
        ["threaded_tools"],
        pools={"io": 1},
        environment=HERE,
        worker_options=["--concurrency", "4"],
        max_deliveries=1,
        shutdown_grace_s=600,
    ) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            # They are given up, and leave one thread of four to those that follow.
            await orchestrator.execute(asking(*[("hangs", forever)] * 3))
            calls = [("waits", {"number": number, "ledger": str(ledger), "until": str(go)}) for number in range(4)]
            asked = asyncio.create_task(orchestrator.execute(asking(*calls)))
            await until(lambda: len(lines(ledger)) == 1)
            await asyncio.sleep(0.5)
            assert len(lines(ledger)) == 1
            [first] = fleet.workers
            ask_to_stop(first)
            await asyncio.to_thread(lambda: until_announced(fleet, fleet.start_worker("io")))
            await until(lambda: len(lines(ledger)) == 4)
            go.touch()
            answers = await asked
            assert await asyncio.to_thread(first.process.wait, WAIT_S) == ExitStatus.DONE
    assert [answer.content for answer in answers] == ["0", "1", "2", "3"]
    ran = [line.split() for line in lines(ledger)]
    assert sorted(number for number, _ in ran) == ["0", "1", "2", "3"]
    assert len({pid for _, pid in ran}) == 2


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.05)
