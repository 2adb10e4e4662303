"""The children of a pool of processes: when they are ended, what holds while some are missing, who they are."""

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import pytest
from durable_server import DurableServer
from fleets import HERE, asking
from processes import WAIT_S, cut_connections, kill, lines, until_gone, until_ready, until_there

from toolfleet import LocalFleet
from toolfleet.broker import celery_app
from toolfleet.connections import connect
from toolfleet.orchestrator import Orchestrator
from toolfleet.streams import GROUP, RETURNED, Priority

HEARTBEAT_S = 0.5
CHILDREN = 2


@contextmanager
def fleet_of(*options, concurrency=CHILDREN, **settings):
    options = ["--concurrency", str(concurrency), *options]
    settings = {"lease_s": 3, "heartbeat_s": HEARTBEAT_S, "call_timeout_s": 7 * 24 * 3600, **settings}
    with LocalFleet(["process_tools"], pools={"cpu": 1}, environment=HERE, worker_options=options, **settings) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def fleet():
    with fleet_of() as running:
        until_ready(running, running.workers[0], CHILDREN)
        yield running


async def test_a_result_waits_for_redis_for_longer_than_its_tool_may_take(tmp_path):
    path = tmp_path / "ledger"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = DurableServer(Path(folder))
        server.start()
        with fleet_of(redis_url=server.url) as fleet:
            async with Orchestrator(settings=fleet.settings) as orchestrator:
                answering = asyncio.create_task(
                    orchestrator.execute(asking(("note_and_keep", {"path": str(path), "mark": "done"})))
                )
                await until_there(Path(f"{path}.begun"))
                server.end(SIGTERM)
                Path(f"{path}.let").touch()
                await until_there(path)
                await asyncio.sleep(4)  # three seconds more than its tool may take, of which one is let be
                await asyncio.to_thread(server.start)
                assert [answer.content for answer in await answering] == ["done"]
        server.end(SIGTERM)
    assert lines(path) == ["done"]


async def test_a_worker_whose_processes_cannot_begin_holds_no_call_and_ends(fleet, tmp_path):
    """Another worker has its calls, none of which was counted against it."""
    failing = await asyncio.to_thread(fleet.start_worker, "cpu", environment={"NO_PROCESS_BEGINS": "1"})
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        while failing.process.poll() is None:
            path = tmp_path / str(time.monotonic())
            asked = [("note", {"path": str(path), "mark": str(n)}) for n in range(20)]
            async with asyncio.timeout(WAIT_S):
                assert [answer.content for answer in await orchestrator.execute(asking(*asked))] == [
                    *map(str, range(20))
                ]
            assert len(lines(path)) == 20
            await asyncio.sleep(0.1)
    assert failing.process.returncode == 1
    assert "processes_never_ready" in failing.log_path.read_text()


async def test_what_is_at_work_after_a_lost_connection_takes_up_its_slots(fleet, tmp_path):
    """Else others would come, find no child, and go back, ten times a second."""
    paths = [tmp_path / str(n) for n in range(2 * CHILDREN)]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        asked = [("note_when_let", {"path": str(path), "mark": "done"}) for path in paths]
        first = asyncio.create_task(orchestrator.execute(asking(*asked[:CHILDREN])))
        for path in paths[:CHILDREN]:
            await until_there(Path(f"{path}.begun"))
        others = asyncio.create_task(orchestrator.execute(asking(*asked[CHILDREN:])))
        await asyncio.to_thread(cut_connections, fleet)
        await asyncio.sleep(4 * HEARTBEAT_S)  # it reads again
        looks = await asyncio.to_thread(looks_at_pending, fleet, for_s=2.0)
        for path in paths:
            Path(f"{path}.let").touch()
        assert [answer.content for answer in (*await first, *await others)] == ["done"] * len(paths)
    assert statistics.median(looks) == CHILDREN  # it may take others ahead for a moment, if its calls were quick before
    assert [lines(path) for path in paths] == [["done"]] * len(paths)


def looks_at_pending(fleet, *, for_s):
    """Return how many calls the workers had, as often as there was time to look."""
    stream, until_s, looks = fleet.settings.keys.queue("cpu", Priority.NORMAL), time.monotonic() + for_s, []
    with connect(fleet.settings) as client:
        while time.monotonic() < until_s:
            held = client.xpending_range(stream, GROUP, "-", "+", 100)
            looks.append(sum(entry["consumer"] != RETURNED.encode() for entry in held))
            time.sleep(0.005)
    return looks


async def test_celery_is_told_in_which_process_a_call_runs(fleet, tmp_path):
    inspect = celery_app(fleet.settings).control.inspect(timeout=2)
    path = tmp_path / "ledger"
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answering = asyncio.create_task(
            orchestrator.execute(asking(("note_when_let", {"path": str(path), "mark": "done"})))
        )
        await until_there(Path(f"{path}.begun"))
        name = f"{fleet.workers[0].name}@{os.uname().nodename}"
        [request] = (await asyncio.to_thread(inspect.active))[name]
        pool = (await asyncio.to_thread(inspect.stats))[name]["pool"]
        Path(f"{path}.let").touch()
        await answering
    assert request["worker_pid"] in pool["processes"]
    assert (pool["running"], pool["ready"]) == (1, CHILDREN)


async def test_a_program_that_a_tool_starts_has_no_input_and_heeds_signals(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [answer] = await orchestrator.execute(asking(("what_a_program_inherits", {})))
    assert answer.content == "['', True]"


@pytest.mark.parametrize(
    ("options", "each"), [(("--max-tasks-per-child", "2"), 2), (("--max-memory-per-child", "1"), 1)]
)
async def test_another_process_takes_over_after_so_many_calls_or_so_much_memory(options, each):
    with fleet_of(*options, concurrency=1) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            answers = [(await orchestrator.execute(asking(("process", {}))))[0].content for _ in range(6)]
    assert answers == [pid for pid in dict.fromkeys(answers) for _ in range(each)]


async def test_the_program_of_a_coroutine_ends_with_its_worker_when_that_is_killed(tmp_path):
    path = tmp_path / "pid"
    with fleet_of() as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            answering = asyncio.create_task(orchestrator.execute(asking(("sleep_in_a_program", {"path": str(path)}))))
            await until_there(path, is_written=True)
            kill(fleet.workers[0])
            await asyncio.to_thread(until_gone, int(path.read_text()))
            answering.cancel()
