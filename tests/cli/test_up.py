"""`toolfleet up`: a fleet that other terminals find, that heals itself, and that leaves nothing when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import redis

from tests.cli.command import TOOLFLEET, Terminal, ended, interrupted, read_until
from tests.ports import free_port
from toolfleet.errors import WorkerNotReady
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.supervisor import Supervisor
from toolfleet.settings import Settings

ARITHMETIC = ("--tools", "toolfleet.workers.packs.arithmetic", "--api-port", "0")
QUESTION = "What is the square root of 475695037565?"
ROOT = "689706.486532"
LOGIN = ("somebody", "some-password")

WAIT_S = 60
STOPPED = 130
TERMINATED = 143

AS_BACKGROUND_JOB = ("sh", "-c", 'trap "" INT HUP; exec "$0" "$@"', TOOLFLEET)
"""How a shell without job control starts what `nohup … &` says."""

MINE = """
from toolfleet import tool

@tool(read_only=True)
async def answer() -> int:
    "The answer."
    return 42
"""

ENDLESS = """
import asyncio
from toolfleet import Context, tool

@tool(read_only=True, long_running=True)
async def sit(ctx: Context) -> None:
    "Sit and wait."
    ctx.progress(0.5, "sitting")
    await asyncio.sleep(600)
"""

FRAGILE = """
from pathlib import Path
from toolfleet import tool

if Path("BROKEN").exists():
    raise RuntimeError("the warehouse is closed")

@tool(read_only=True)
async def answer() -> int:
    "The answer."
    return 42
"""


@dataclass(frozen=True)
class Up:
    """A running `toolfleet up`, and the terminal it runs in, from which others may be opened."""

    terminal: Terminal
    process: subprocess.Popen[str]
    said: list[str]
    flower: str

    def pids(self) -> dict[str, int]:
        """The workers that it said it started, by name."""
        return pids_in(self.said)

    def another(self) -> Terminal:
        """Another terminal of the same user, whose processes are told apart."""
        return Terminal(self.terminal.folder)

    def announced(self) -> dict[str, list[str]]:
        """Live workers and their tools, as another terminal sees them."""
        seen: list[dict[str, Any]] = json.loads(self.another().run("tools", "--json").out)
        return {worker["worker"].partition("@")[0]: [tool["name"] for tool in worker["tools"]] for worker in seen}


def pids_in(said: list[str]) -> dict[str, int]:
    found = [re.match(r"worker: +([\w-]+) \(pid (\d+)\)", line) for line in said]
    return {match[1]: int(match[2]) for match in found if match}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    port = free_port()
    terminal = Terminal(tmp_path_factory.mktemp("up"), {"TOOLFLEET_FLOWER_AUTH": ":".join(LOGIN)})
    terminal.write("mine", MINE)
    options = (*ARITHMETIC, "--cpu", "0", "--long", "0", "--flower-port", str(port))
    with terminal.start("up", *options) as process:
        said = read_until(process, "Ready.")
        yield Up(terminal, process, said, f"http://127.0.0.1:{port}")
        stopped = interrupted(process)
    assert stopped.code == STOPPED, stopped
    assert stopped.err == "toolfleet: stopped\n"
    terminal.until_nothing_is_left()


def test_another_terminal_sees_its_tools(up: Up) -> None:
    seen = up.another().run("tools")
    assert "square_root" in seen.out
    assert up.announced()[next(iter(up.pids()))] == ["square_root", "sum"]


def test_a_worker_that_is_told_no_address_joins_the_fleet(up: Up) -> None:
    other = up.another()
    with other.start("worker", "--pool", "io", "--import", "mine", "--name", "joined") as process:
        give_up = time.monotonic() + WAIT_S
        while "joined" not in (announced := up.announced()):
            assert time.monotonic() < give_up
        process.send_signal(signal.SIGTERM)
        left = ended(process)
    assert announced["joined"] == ["answer"]
    assert left.code == 0, left
    assert left.err == ""
    other.until_nothing_is_left()
    assert "joined" not in up.announced()


def test_flower_asks_for_the_login(up: Up) -> None:
    assert httpx.get(f"{up.flower}/api/workers").status_code == 401
    assert httpx.get(f"{up.flower}/api/workers", auth=("somebody", "else")).status_code == 401
    assert httpx.get(f"{up.flower}/api/workers", auth=LOGIN, timeout=WAIT_S).status_code == 200


def test_flower_shows_workers_and_calls_by_the_names_of_their_tools(up: Up) -> None:
    worker = f"{next(iter(up.pids()))}@{os.uname().nodename}"
    with httpx.Client(base_url=up.flower, auth=LOGIN, timeout=WAIT_S) as flower:
        assert "square_root" in flower.get("/api/workers", params={"refresh": "1"}).json()[worker]["registered"]
        assert flower.get(f"/worker/{worker}").status_code == 200
        assert ROOT in up.another().run("run", QUESTION).out  # another terminal finds the fleet
        give_up = time.monotonic() + WAIT_S
        while ("square_root", "SUCCESS") not in seen_calls(flower):
            assert time.monotonic() < give_up
            time.sleep(0.05)


def seen_calls(flower: httpx.Client) -> set[tuple[str, str]]:
    return {(task["name"], task["state"]) for task in flower.get("/api/tasks").json().values()}


def test_a_login_that_was_set_is_not_shown(up: Up) -> None:
    [line] = [line for line in up.said if line.startswith("Flower:")]
    assert up.flower in line
    assert LOGIN[1] not in line


def test_a_worker_that_dies_is_started_again(up: Up) -> None:
    [(name, pid)] = up.pids().items()
    os.kill(pid, signal.SIGKILL)
    said = read_until(up.process, "worker:")
    assert f"worker {name} was killed by signal 9" in said
    [(successor, _)] = pids_in(said).items()
    give_up = time.monotonic() + WAIT_S
    while successor not in up.announced():
        assert time.monotonic() < give_up
    assert ROOT in up.another().run("run", QUESTION).out


def test_its_orchestrator_works_on_detached_runs_and_is_started_again_when_it_dies(up: Up) -> None:
    [pid] = [int(found[1]) for line in up.said if (found := re.match(r"orchestrator: .*\(pid (\d+)\)", line))]
    os.kill(pid, signal.SIGKILL)
    said = read_until(up.process, "orchestrator:")
    assert "orchestrator1 was killed by signal 9" in said
    assert said[-1].endswith("started again")
    run_id = up.another().run("run", QUESTION, "--detach").out.strip()
    run = json.loads(up.another().run("runs", "show", run_id, "--wait", "--json").out)
    assert ROOT in run["answer"]


def test_as_a_background_job_it_ignores_the_terminal_and_stops_at_sigterm(terminal: Terminal) -> None:
    terminal.write("mine", MINE)
    options = ("--tools", "mine", "--cpu", "0", "--long", "0", "--no-flower", "--no-api")
    with terminal.start("up", *options, program=AS_BACKGROUND_JOB) as process:
        said = read_until(process, "Ready.")
        os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGHUP)
        os.kill(*pids_in(said).values(), signal.SIGKILL)
        read_until(process, "worker: ")  # it lives: it has started another
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
    assert (stopped.code, stopped.err) == (TERMINATED, "toolfleet: stopped\n")
    terminal.until_nothing_is_left()


def test_a_second_ctrl_c_does_not_wait_for_running_calls(terminal: Terminal) -> None:
    terminal.write("endless", ENDLESS)
    other = Terminal(terminal.folder)
    options = ("--tools", "endless", "--io", "0", "--cpu", "0", "--no-flower", "--no-api")
    with terminal.start("up", *options, TOOLFLEET_SHUTDOWN_GRACE_S="600") as process:
        read_until(process, "Ready.")
        with other.start("run", "call sit {} then fetch", "--slow", "handle") as asking:
            read_until(asking, "sit: 50% sitting")
            os.killpg(process.pid, signal.SIGINT)
            until_withdrawn(Terminal(terminal.folder))
            stopped = interrupted(process)
    assert stopped.code == STOPPED, stopped
    terminal.until_nothing_is_left()


def until_withdrawn(terminal: Terminal) -> None:
    """Wait until no worker takes calls any more, which is the first thing that a stopping one sees to."""
    give_up = time.monotonic() + WAIT_S
    while json.loads(terminal.run("tools", "--json").out):
        assert time.monotonic() < give_up


def test_killed_it_leaves_no_process_and_keeps_its_data(terminal: Terminal) -> None:
    with terminal.start("up", *ARITHMETIC, "--long", "0", "--flower-port", str(free_port())) as process:
        said = read_until(process, "Ready.")
        assert len(pids_in(said)) == 2
        run = json.loads(Terminal(terminal.folder).run("run", QUESTION, "--json").out)
        process.kill()
        process.wait()
        terminal.until_nothing_is_left()
    with EmbeddedServer(terminal.folder / "data" / "toolfleet") as server, redis.Redis.from_url(server.url) as client:
        assert client.exists(Settings().keys.run(run["run_id"]))


def test_a_pool_whose_workers_keep_dying_is_given_up_with_the_reason(terminal: Terminal) -> None:
    terminal.write("fragile", FRAGILE.replace("BROKEN", str(broken := terminal.folder / "broken")))
    here = {"PYTHONPATH": str(terminal.folder)}
    with LocalFleet(["fragile"], pools={"io": 1}, environment=here) as fleet:
        supervisor = Supervisor(fleet, refusals_allowed=1, first_pause_s=0.01)
        [first] = fleet.workers
        first.process.kill()
        first.process.wait()
        broken.touch()
        assert supervisor.look() == ([first], [])
        with pytest.raises(WorkerNotReady, match=r"2 workers of the pool io ended .* the warehouse is closed \(.*:6\)"):
            look_until_it_raises(supervisor)


def look_until_it_raises(supervisor: Supervisor) -> None:
    give_up = time.monotonic() + WAIT_S
    while time.monotonic() < give_up:
        _, started = supervisor.look()
        for worker in started:
            worker.process.wait(WAIT_S)
