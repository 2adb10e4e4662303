"""The processes of the soak: begun, killed, begun again; what each of them holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from benchmarks.launch import PROJECT
from benchmarks.processes import end

WORKER: Final = (
    *(sys.executable, "-m", "toolfleet.workers", "--pool", "io", "--concurrency", "200"),
    *("--import", "benchmarks.soak.soak_tools"),
)
ORCHESTRATOR: Final = (sys.executable, "-m", "benchmarks.soak.orchestrating")


class Process:
    """One process of the fleet under its name. Killed, another one takes its place."""

    def __init__(self, name: str, argv: tuple[str, ...], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._argv, self._environment, self._log = argv, dict(environment), folder / f"{name}.log"
        self._process = self._begin()

    def replace(self) -> None:
        """Kill it, with all that it has started, and begin another."""
        self._tree_killed()
        self._process = self._begin()

    def end(self) -> None:
        """Ask it to stop, and kill what is left."""
        end(self._tree())
        self._process.wait()

    def has_died(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return lines[-1] if lines else "nothing"

    def holds(self) -> dict[str, float]:
        """Resident memory in MiB and open descriptors, of the process itself."""
        process = psutil.Process(self._process.pid)
        return {"mib": process.memory_info().rss / 2**20, "descriptors": float(process.num_fds())}

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._argv,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=PROJECT,
            )

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _tree_killed(self) -> None:
        children = self._tree()[1:]
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        # A worker's companion ends by itself once its worker is gone; that is a part of what is tried.
        psutil.wait_procs(children, timeout=10)
        end([child for child in children if child.is_running()])
