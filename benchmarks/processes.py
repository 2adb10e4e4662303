"""A process and those below it: start, pause, resume, end; their processor time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.contender import Command

GRACE_S = 1.0
CPUCLOCK_SCHED = 2
"""Which of a process's clocks: the scheduler's."""


class ProcessTree:
    """A root process and all that it started: a worker's, or the server's."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root

    def processes(self) -> list[psutil.Process]:
        """All processes of the tree that are alive."""
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        """Processor seconds used so far, those of ended children included."""
        return sum(cpu_s(process) for process in self.processes())

    def memory_mib(self) -> float:
        """Resident memory of the tree."""
        return sum(process.memory_info().rss for process in self.processes()) / 2**20

    def pause(self) -> None:
        """Stop the processes where they are: the queue fills, nothing drains."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused tree go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            process.send_signal(number)


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds of one process and of its ended children."""
    times = process.cpu_times()
    own = times.user + times.system
    if sys.platform == "linux":
        # Its own clock counts nanoseconds, `times` hundredths of a second; see clock_getcpuclockid(3).
        own = time.clock_gettime((~process.pid << 3) | CPUCLOCK_SCHED)
    return float(own + times.children_user + times.children_system)


@contextmanager
def running(command: Command, log: Path) -> Iterator[ProcessTree]:
    """The worker's tree while the block runs; afterwards none of it is left."""
    with log.open("wb") as output:
        root = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    tree = ProcessTree(psutil.Process(root.pid))
    try:
        yield tree
    finally:
        end(tree.processes())
        root.wait()


def end(processes: list[psutil.Process]) -> None:
    """Ask the first to terminate, kill what is left after `GRACE_S`."""
    with suppress(psutil.NoSuchProcess, IndexError):
        processes[0].terminate()
    _, alive = psutil.wait_procs(processes, timeout=GRACE_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)
