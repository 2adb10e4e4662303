"""On which event loop the processes of a fleet run: what a process has loaded, its memory map tells."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.command import ended, read_until
from tests.cli.staffed import staffed
from toolfleet.event_loop import run_service
from toolfleet.local.fleet import LocalFleet

uvloop = pytest.importorskip("uvloop", reason="there is no wheel for this platform, and none is needed")

on_linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")


async def loop_of_this_process() -> str:
    import asyncio

    return type(asyncio.get_running_loop()).__module__


def has_loaded_uvloop(pid: int) -> bool:
    return "uvloop/loop." in Path(f"/proc/{pid}/maps").read_text()


def test_a_service_runs_on_uvloop():
    assert run_service(loop_of_this_process()) == "uvloop"


@on_linux
def test_a_worker_runs_on_uvloop():
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}) as fleet:
        assert has_loaded_uvloop(fleet.workers[0].pid)


@on_linux
@pytest.mark.parametrize("words", [("orchestrator",), ("serve", "--port", "0")], ids=["orchestrator", "serve"])
def test_a_service_command_runs_on_uvloop(words: tuple[str, ...], tmp_path: Path):
    with staffed(tmp_path) as terminal, terminal.start(*words) as process:
        read_until(process, "Ready.")
        assert has_loaded_uvloop(process.pid)
        process.send_signal(signal.SIGTERM)
        assert ended(process).code == 0
