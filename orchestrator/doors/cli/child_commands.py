"""A command of ours as child processes of `toolfleet up`: started, kept by a supervisor, stopped in order.

Knows how a command is started so that it ends with us; what it does is its own matter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from toolfleet.local.worker_process import WorkerProcess, stop_workers
from toolfleet.settings import Settings


class CommandProcess(WorkerProcess):
    """One process of a command, kept as workers are."""

    @property
    def refused(self) -> bool:
        """Whether the command has ended by itself, which a service does when it cannot serve."""
        return (self.process.poll() or 0) > 0

    def ending(self) -> str:
        """Return how the process ended and what it said last."""
        code = self.process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return "\n".join(filter(None, [f"{self.name} {how}", self.log_tail()]))


class ChildCommands:
    """The processes of one command, as a supervisor sees them."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        pool: str,
        settings: Settings,
        environment: Mapping[str, str],
        directory: Path,
        lifeline: int,
        grace_s: float,
    ) -> None:
        """`grace_s`: how long one that is asked to stop may take. `lifeline`: they end when its other end closes."""
        self._arguments = arguments
        self._pool = pool
        self._settings = settings
        self._environment = environment
        self._directory = directory
        self._lifeline = lifeline
        self._grace_s = grace_s
        self._numbers = count(1)
        self.workers: list[WorkerProcess] = []

    def start_worker(self, pool: str = "") -> WorkerProcess:
        """Start one more process."""
        name = f"{pool or self._pool}{next(self._numbers)}"
        log_path = self._directory / f"{name}.log"
        with log_path.open("ab") as log:
            # -P: a folder called `orchestrator` beside the user must not be taken for ours.
            command = [sys.executable, "-P", "-m", "toolfleet.orchestrator.doors.cli", *self._arguments]
            process = subprocess.Popen(  # noqa: S603  # our own module
                [*command, "--lifeline", str(self._lifeline)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._settings.as_environment(), **self._environment},
                pass_fds=[self._lifeline],
                # Ctrl-C is for the one who started it, and who stops everything in order.
                start_new_session=True,
            )
        started = CommandProcess(self._pool, name, process, log_path)
        self.workers.append(started)
        return started

    def stop(self) -> None:
        """Let them hand over what they are at, for a moment. None is left afterwards."""
        processes, self.workers[:] = list(self.workers), []
        stop_workers(processes, grace_s=self._grace_s)
