"""The pool of processes: tools start processes of their own, which end with them, and what has ended is forgotten."""

import asyncio
import contextlib

import pytest
from fleets import HERE, asking
from processes import WAIT_S, until_gone

from toolfleet import LocalFleet
from toolfleet.broker import celery_app
from toolfleet.orchestrator import Orchestrator

CALLS = 2500
"""Well above what is dropped at once."""


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["process_tools"],
        pools={"cpu": 1},
        environment=HERE,
        worker_options=["--concurrency", "2"],
        call_timeout_s=7 * 24 * 3600,
    ) as running:
        yield running


def kept_timers(fleet):
    [answer] = celery_app(fleet.settings).control.broadcast("kept_timers", reply=True, timeout=WAIT_S, limit=1)
    [kept] = answer.values()
    return kept


async def test_the_timers_of_calls_that_have_ended_are_dropped(fleet, orchestrator):
    before = await asyncio.to_thread(kept_timers, fleet)
    answers = await orchestrator.execute(asking(*(("double", {"value": n}) for n in range(CALLS))))
    assert [answer.content for answer in answers] == [str(2 * n) for n in range(CALLS)]
    assert await asyncio.to_thread(kept_timers, fleet) < before + CALLS / 2


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("squares", {"numbers": [1, 2, 3], "method": "fork"}),
        ("squares", {"numbers": [1, 2, 3], "method": "spawn"}),
        ("squares", {"numbers": [1, 2, 3], "method": "forkserver"}),
        ("squares_of_futures", {"numbers": [1, 2, 3]}),
    ],
)
async def test_a_tool_may_use_multiprocessing(ask, tool, given):
    assert await ask((tool, given)) == ["[1,4,9]"]


async def test_the_processes_of_a_tool_end_with_it_at_its_time_limit(ask, tmp_path):
    path = tmp_path / "pid"
    [said] = await ask(("sleep_too_long_in_a_process", {"path": str(path)}))
    assert "took longer than its limit" in said
    await asyncio.to_thread(until_gone, int(path.read_text()))


async def test_the_processes_of_a_tool_end_with_it_when_it_is_cancelled(fleet, tmp_path):
    path = tmp_path / "pid"
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        call = asyncio.create_task(orchestrator.execute(asking(("sleep_in_a_process", {"path": str(path)}))))
        async with asyncio.timeout(WAIT_S):
            while not path.exists() or not path.read_text():
                await asyncio.sleep(0.02)  # a file tells nobody
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
    await asyncio.to_thread(until_gone, int(path.read_text()))
