"""`toolfleet up --reload`: the tools are those on disk, calls under way end with the code they began with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Terminal, interrupted, read_until
from toolfleet.connections import connect
from toolfleet.local.fleet import LocalFleet, WorkerProcess
from toolfleet.orchestrator.doors.cli.reloading import Reloader, places_of

STOPPED = 130

TOOL = """
import asyncio
from pathlib import Path
from toolfleet import tool

@tool(read_only=True)
async def version() -> str:
    "Which version this is."
    return "the FIRST one"

@tool
async def wait(FOR: str) -> str:
    "Waits for a file."
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "waited in the FIRST one"
"""


@dataclass(frozen=True)
class Reloading:
    terminal: Terminal
    process: subprocess.Popen[str]

    def save(self, text: str) -> None:
        self.terminal.write("mine", text)

    def asked(self) -> str:
        return Terminal(self.terminal.folder).run("run", "call version {}").out


@pytest.fixture
def fleet(terminal: Terminal) -> Iterator[Reloading]:
    terminal.write("mine", TOOL)
    options = ("--tools", "mine", "--cpu", "0", "--long", "0", "--no-flower", "--no-api", "--orchestrators", "0")
    with terminal.start("up", "--reload", *options) as process:
        read_until(process, "Ready")
        yield Reloading(terminal, process)
        stopped = interrupted(process)
    assert (stopped.code, stopped.err) == (STOPPED, "toolfleet: stopped\n")
    terminal.until_nothing_is_left()


def test_a_saved_change_is_served_and_a_call_under_way_ends_as_it_began(fleet: Reloading) -> None:
    other = Terminal(fleet.terminal.folder)
    assert "the FIRST one" in fleet.asked()
    with other.start("run", 'call wait {"FOR": "x"}') as waiting:
        while not (other.folder / "begun").exists():
            assert waiting.poll() is None
        fleet.save(TOOL.replace("FIRST", "SECOND"))
        assert read_until(fleet.process, "worker:")[-1].endswith("reloaded")
        assert "the SECOND one" in fleet.asked()
        assert waiting.poll() is None
        (other.folder / "go").touch()
        out, _ = waiting.communicate(timeout=60)
    assert "waited in the FIRST one" in out


def test_a_broken_module_is_said_the_workers_stay_and_the_next_save_is_tried(fleet: Reloading) -> None:
    fleet.save("raise RuntimeError('half a thought')")
    [*_, complaint] = read_until(fleet.process, "Not reloaded")
    assert "half a thought" in complaint
    assert "io1" in complaint
    assert "the FIRST one" in fleet.asked()
    fleet.save(TOOL.replace("FIRST", "THIRD"))
    read_until(fleet.process, "worker:")
    assert "the THIRD one" in fleet.asked()


def test_another_schema_takes_the_place_of_the_first(fleet: Reloading) -> None:
    fleet.save(TOOL.replace("FOR", "PATIENTLY_FOR"))
    read_until(fleet.process, "worker:")
    served: list[dict[str, Any]] = []
    while len(served) != 1:  # the worker that ends says until then what it serves
        seen = json.loads(Terminal(fleet.terminal.folder).run("tools", "--json").out)
        served = [tool for worker in seen for tool in worker["tools"] if tool["name"] == "wait"]
    assert list(served[0]["input_schema"]["properties"]) == ["PATIENTLY_FOR"]


def test_it_is_said_when_the_old_worker_reads_no_more() -> None:
    """Not when it was asked to stop, which it may hear of late: until then it takes calls for the old code."""
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}) as fleet, connect(fleet.settings) as redis:
        [old] = fleet.workers
        reloader = Reloader(fleet, grace_s=60)
        said: list[tuple[str, bool]] = []
        with redis.monitor() as monitor, ThreadPoolExecutor() as beside:
            os.kill(old.pid, signal.SIGSTOP)
            going_on = beside.submit(go_on_once_asked_to_stop, old.pid)
            reloader.reload(lambda line: said.append((line, serves(fleet, old))))
            going_on.result()
            removed = removed_until(monitor, fleet.settings.keys.workers())
        reloader.stop()
        [worker] = fleet.workers
    assert said == [(f"worker:  {worker.name} (pid {worker.pid}), reloaded", False)]
    assert [key for key in removed if ":lane:" in key], "it has withdrawn before it read no more"


def go_on_once_asked_to_stop(pid: int) -> None:
    """Let a process that stands still go on when SIGTERM waits for it."""
    while not int(re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1], 16) >> 14 & 1:
        time.sleep(0.01)
    os.kill(pid, signal.SIGCONT)


def removed_until(monitor: Any, key: str) -> list[str]:
    """From which sorted sets something was removed before something was from this one."""
    removed: list[str] = []
    while key not in removed:
        words = monitor.next_command()["command"].split()
        removed += [words[1]] if words[0].upper() == "ZREM" else []
    return removed


def serves(fleet: LocalFleet, worker: WorkerProcess) -> bool:
    return worker in fleet.still_serving([worker], 0)


def test_what_is_watched_is_found_without_importing_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lone_module_of_mine.py").write_text("raise RuntimeError")
    (tmp_path / "package_of_mine" / "inner").mkdir(parents=True)
    (tmp_path / "package_of_mine" / "__init__.py").write_text("raise RuntimeError")
    places = places_of(["lone_module_of_mine", "package_of_mine.inner.tools", "not_there_at_all"])
    assert (places.packages, places.folders) == ({tmp_path / "package_of_mine"}, {tmp_path})
