"""The pool of processes: tools start processes of their own, which end with them."""

import asyncio
import contextlib
import os
import subprocess
import sys
from subprocess import PIPE, STDOUT

import psutil
import pytest
from fleets import HERE, asking
from processes import WAIT_S, kill, until_announced, until_gone, until_there

from toolfleet import LocalFleet
from toolfleet.broker import celery_app


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


async def test_a_process_of_a_tool_that_is_told_to_end_while_it_is_born_does(ask):
    assert await ask(("begin_and_end_processes", {"count": 200})) == ["200"]


async def test_the_processes_of_a_tool_end_with_it_at_its_time_limit(ask, tmp_path):
    path = tmp_path / "pid"
    [said] = await ask(("sleep_too_long_in_a_process", {"path": str(path)}))
    assert "took longer than its limit" in said
    await asyncio.to_thread(until_gone, int(path.read_text()))


async def test_the_processes_of_a_tool_end_with_it_when_it_is_cancelled(fleet, ask, tmp_path):
    path = tmp_path / "pid"
    answer = asyncio.create_task(ask(("sleep_in_a_process", {"path": str(path)})))
    await until_there(path, is_written=True)
    call_id = (tmp_path / "pid.call").read_text()
    await asyncio.to_thread(celery_app(fleet.settings).control.revoke, call_id, terminate=True)
    assert await answer == ["sleep_in_a_process was cancelled."]
    async with asyncio.timeout(WAIT_S):
        while is_alive(int(path.read_text())):
            await asyncio.sleep(0.05)  # its parent goes on with other calls, and tells nobody


async def test_the_processes_of_a_tool_end_with_its_worker_when_that_is_killed(fleet, orchestrator, tmp_path):
    worker = await asyncio.to_thread(fleet.start_worker, "press")
    await asyncio.to_thread(until_announced, fleet, worker)
    path = tmp_path / "pid"
    answering = asyncio.create_task(orchestrator.execute(asking(("sleep_beside", {"path": str(path)}))))
    await until_there(path, is_written=True)
    await asyncio.to_thread(kill, worker)
    fleet.workers.remove(worker)
    try:
        await asyncio.to_thread(until_gone, int(path.read_text()))
    finally:
        answering.cancel()


def is_alive(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def test_a_tool_that_is_declared_for_a_process_has_no_effect_after_its_time(fleet, ask, tmp_path):
    worker = await asyncio.to_thread(fleet.start_worker, "press")
    await asyncio.to_thread(until_announced, fleet, worker)
    path = tmp_path / "paper"
    [said] = await ask(("print_slowly", {"path": str(path)}))
    assert said.startswith("print_slowly took longer than its limit; its process was killed.")
    await asyncio.to_thread(until_gone, int((tmp_path / "paper.pid").read_text()))
    assert not path.exists()


def worker_said(fleet, *words, until=None):
    command = [sys.executable, "-m", "toolfleet.workers", "--import", "process_tools", *words]
    environment = {**os.environ, **HERE, **fleet.settings.as_environment()}
    with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=STDOUT, text=True) as process:
        said = ""
        for line in process.stdout:
            said += line
            if until is not None and until in said:
                process.kill()
                break
        return process.wait(WAIT_S), said


@pytest.mark.parametrize("kind", ["threads", "asyncio", "solo"])
def test_a_worker_that_has_no_processes_says_which_tools_need_one_and_does_not_start(fleet, kind):
    code, said = worker_said(fleet, "--pool", "press", "--kind", kind)
    assert code != 0
    assert 'print_slowly, print_when_let, sleep_beside must run in a process (blocking="process")' in said
    assert "--kind prefork" in said


def test_a_worker_of_threads_tells_once_of_a_tool_that_may_have_its_effect_after_its_time(fleet):
    _, said = worker_said(fleet, "--pool", "desk", until="Ready:")
    told = [line for line in said.splitlines() if "tool_cannot_be_stopped" in line]
    assert len(told) == 1
    assert "stamp" in told[0]
    assert "blocking=" in told[0]


async def test_who_sends_sigterm_to_all_processes_of_a_worker_lets_calls_end(fleet, ask, tmp_path):
    """As systemd does when a service is stopped, whose children are not told by us."""
    worker = await asyncio.to_thread(fleet.start_worker, "press")
    await asyncio.to_thread(until_announced, fleet, worker)
    path = tmp_path / "paper"
    answering = asyncio.create_task(ask(("print_when_let", {"path": str(path)})))
    await until_there(tmp_path / "paper.begun")
    for process in [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]:
        process.terminate()
    await asyncio.sleep(0.5)
    (tmp_path / "paper.let").touch()
    assert await answering == ["printed"]
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    fleet.workers.remove(worker)
