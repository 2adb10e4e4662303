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
    ledger, go, count = tmp_path / "ledger", tmp_path / "go", 40
    with LocalFleet(["threaded_tools"], pools={"io": 1}, environment=HERE, max_deliveries=1) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            given = {"ledger": str(ledger), "until": str(go)}
            calls = [("computes", {"number": number, **given}) for number in range(count)]
            asked = asyncio.create_task(orchestrator.execute(asking(*calls)))
            async with asyncio.timeout(WAIT_S):
                while not lines(ledger):
                    await asyncio.sleep(0.05)
            [first] = fleet.workers
            ask_to_stop(first)
            await asyncio.to_thread(lambda: until_announced(fleet, fleet.start_worker("io")))
            async with asyncio.timeout(WAIT_S):
                while len({line.split()[1] for line in lines(ledger)}) < 2:
                    await asyncio.sleep(0.05)
            go.touch()
            answers = await asked
    assert [answer.content for answer in answers] == [str(number) for number in range(count)]
    assert sorted(int(line.split()[0]) for line in lines(ledger)) == list(range(count))
    assert await asyncio.to_thread(first.process.wait, WAIT_S) == ExitStatus.DONE
