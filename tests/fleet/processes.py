"""Killing workers, finding who runs what, and putting a fleet together again for the next test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from toolfleet.broker import celery_app
from toolfleet.connections import connect
from toolfleet.local.fleet import LocalFleet, WorkerProcess

WAIT_S = 30


def worker_of(fleet: LocalFleet, pid: int) -> WorkerProcess:
    """The worker whose main process, or child, has this pid."""
    family = {pid, *(parent.pid for parent in psutil.Process(pid).parents())}
    [worker] = [worker for worker in fleet.workers if worker.pid in family]
    return worker


def kill(worker: WorkerProcess) -> None:
    """kill -9: the main process, without a word to anybody."""
    worker.process.kill()
    worker.process.wait(WAIT_S)


def ask_to_stop(worker: WorkerProcess) -> None:
    worker.process.send_signal(signal.SIGTERM)


def alive(fleet: LocalFleet, pool: str) -> list[WorkerProcess]:
    return [worker for worker in fleet.workers if worker.pool == pool and worker.process.poll() is None]


def replenish(fleet: LocalFleet, **pools: int) -> None:
    """Start workers until so many of each pool live, and wait until each has announced itself."""
    awaited = [worker for pool in pools for worker in alive(fleet, pool)]
    for pool, count in pools.items():
        awaited += [fleet.start_worker(pool) for _ in range(count - len(alive(fleet, pool)))]
    until_announced(fleet, *awaited)


def until_announced(fleet: LocalFleet, *workers: WorkerProcess) -> None:
    names = {f"{worker.name}@{os.uname().nodename}".encode() for worker in workers}
    deadline = time.monotonic() + WAIT_S
    with connect(fleet.settings) as client:
        while not names <= set(client.zrange(fleet.settings.keys.workers(), 0, -1)):
            assert time.monotonic() < deadline, f"not announced: {names}"
            time.sleep(0.05)


def until_ready(fleet: LocalFleet, worker: WorkerProcess, processes: int) -> None:
    """Wait until so many processes of a worker's pool can take a call."""
    name = f"{worker.name}@{os.uname().nodename}"
    deadline = time.monotonic() + WAIT_S
    with celery_app(fleet.settings).connection_for_write() as connection:  # a test may have cut others
        inspect = celery_app(fleet.settings).control.inspect([name], timeout=1, connection=connection)
        while (inspect.stats() or {}).get(name, {}).get("pool", {}).get("ready") != processes:
            assert time.monotonic() < deadline, f"not ready: {name}"


def cut_connections(fleet: LocalFleet) -> None:
    """Have the server close each connection of the fleet's processes."""
    with connect(fleet.settings) as client:
        client.client_kill_filter(_type="normal", skipme=True)
        client.client_kill_filter(_type="pubsub", skipme=True)


def until_gone(pid: int) -> None:
    """Wait until a process, a killed child of somebody's for example, is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(WAIT_S)


async def until_there(path: Path, *, is_written: bool = False) -> None:
    """Return when there is such a file, or one with something in it."""
    async with asyncio.timeout(WAIT_S):
        while not path.exists() or (is_written and not path.read_text()):
            await asyncio.sleep(0.01)  # a file tells nobody


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
