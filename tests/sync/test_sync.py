"""Orchestrators without an event loop: scripts, notebooks, threads, forks; real workers, processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fleets import HERE as FLEET
from stages import stage_of_its_own

from tests.sync.summing_model import summing
from toolfleet.calls import Returned
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator, sync
from toolfleet.orchestrator.run.states import State

ENDS_WITHIN_S = 60
HERE = str(Path(__file__).parent)


@pytest.fixture
def orchestrator(fleet):
    opened = Orchestrator(summing(), settings=fleet.settings)
    yield opened
    sync.close(opened)


def script(fleet, text, *words):
    """A Python program of its own that uses the fleet."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *words],
        env={**os.environ, **fleet.settings.as_environment(), "PYTHONPATH": HERE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said_by(process):
    out, err = process.communicate(timeout=ENDS_WITHIN_S)
    assert (process.returncode, err) == (0, "")
    return out.strip()


def test_a_script_asks_a_question_and_ends(fleet):
    text = """
from toolfleet.orchestrator import Orchestrator
from summing_model import summing

print(Orchestrator(summing()).run_sync("1 and 2").answer)
"""
    assert said_by(script(fleet, text)) == "it is 3.0"


async def test_a_notebook_asks_while_its_own_loop_runs(orchestrator):
    assert asyncio.get_running_loop().is_running()
    assert orchestrator.run_sync("1 and 2").answer == "it is 3.0"


def test_twenty_threads_ask_at_once(orchestrator):
    with ThreadPoolExecutor(20) as threads:
        runs = list(threads.map(lambda n: orchestrator.run_sync(f"1 and {n}"), range(20)))
    assert [run.answer for run in runs] == [f"it is {1.0 + n}" for n in range(20)]
    assert sum(thread.name == "toolfleet-loop" for thread in threading.enumerate()) == 1


def test_every_method_can_be_used_without_await(orchestrator):
    assert sync.do(orchestrator, lambda fleet: fleet.call("sum", {"numbers": [1, 2]})) == Returned(content="3.0")
    run_id = sync.do(orchestrator, lambda fleet: fleet.start("2 and 2"))
    assert sync.do(orchestrator, lambda fleet: fleet.wait(run_id)).answer == "it is 4.0"


def test_a_closed_orchestrator_is_opened_again(orchestrator):
    assert orchestrator.run_sync("1 and 1").answer == "it is 2.0"
    first = orchestrator.orchestrator_id
    sync.close(orchestrator)
    assert not orchestrator.is_open
    assert orchestrator.run_sync("1 and 2").answer == "it is 3.0"
    assert orchestrator.orchestrator_id != first


def test_an_orchestrator_that_could_not_be_opened_is_tried_again(fleet):
    nowhere = Orchestrator(settings=fleet.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    for _ in range(2):
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
            sync.do(nowhere, lambda fleet: fleet.runs())


async def test_an_orchestrator_of_another_loop_says_how_to_use_it(fleet):
    async with Orchestrator(summing(), settings=fleet.settings) as awaited:
        with pytest.raises(sync.NotHere, match="await its methods"):
            awaited.run_sync("1 and 2")


def test_code_on_the_loop_itself_is_told_to_await(orchestrator):
    async def nested(fleet):
        return fleet.run_sync("1 and 2")

    with pytest.raises(sync.NotHere, match="own event loop"):
        sync.do(orchestrator, nested)


def test_each_process_of_a_server_that_forks_has_a_loop_of_its_own(fleet):
    text = """
import os, warnings
from toolfleet.orchestrator import sync
from toolfleet.orchestrator import Orchestrator
from summing_model import summing

# From 3.12 on Python says that forking beside threads may go wrong; servers do it, and here it must not.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
unused, used = Orchestrator(summing()), Orchestrator(summing())
print(used.run_sync("1 and 2").answer, flush=True)
children = []
for number in range(2):
    reader, writer = os.pipe()
    if os.fork() == 0:
        said = unused.run_sync(f"1 and {number}").answer
        try:
            used.run_sync("1 and 2")
        except sync.NotHere as error:
            said += "; " + str(error)
        os.write(writer, f"{unused.orchestrator_id} {said}".encode())
        sync.close(unused)
        os._exit(0)
    os.close(writer)
    children.append(reader)
heard = [open(reader).read() for reader in children]
ids = {text.split()[0] for text in heard}
for _ in children:
    os.wait()
print(len(ids), *(text.partition(" ")[2] for text in heard), used.run_sync("2 and 2").answer, sep="|")
"""
    refused = "this Orchestrator was used before the process forked: make one in each process"
    first, second = said_by(script(fleet, text)).splitlines()
    assert first == "it is 3.0"
    assert second == f"2|it is 1.0; {refused}|it is 2.0; {refused}|it is 4.0"


async def test_ctrl_c_in_a_script_cancels_its_run_on_the_workers():
    text = """
import sys
from toolfleet.orchestrator import Orchestrator
from summing_model import summing

Orchestrator(summing()).run_sync(sys.argv[1])
"""
    async with stage_of_its_own() as stage:
        with LocalFleet(["fleet_tools"], pools={"io": 1}, environment=FLEET, lease_s=3, heartbeat_s=0.5) as fleet:
            process = script(fleet, text, stage.path)
            actor = await stage.enters()
            os.kill(process.pid, signal.SIGINT)
            assert await actor.leaves() == "cancelled"
            _, err = await asyncio.to_thread(process.communicate, timeout=ENDS_WITHIN_S)
            assert process.returncode == -signal.SIGINT
            assert err.rstrip().endswith("KeyboardInterrupt")
            async with Orchestrator(settings=fleet.settings) as observer:
                [head] = await observer.runs()
    assert head.state is State.CANCELLED
