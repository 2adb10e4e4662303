"""Orchestrators as child processes of `toolfleet up`: started, waited for, stopped before the workers are.

Knows the command of an orchestrator; who is started again and how soon, the supervisor decides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from orchestrator.cli.orchestrator import is_process
from toolfleet.connections import connect, translating
from toolfleet.errors import WorkerNotReady
from toolfleet.lifeline import lifeline
from toolfleet.settings import Settings
from toolfleet.worker_process import WorkerProcess, stop_workers

POOL: Final = "orchestrator"

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

GRACE_S: Final = 8.0
"""Handing over takes 5 s at most."""


class OrchestratorProcess(WorkerProcess):
    """One orchestrator process, kept as workers are."""

    def ending(self) -> str:
        """How the process ended and what it said last."""
        code = self.process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return "\n".join(filter(None, [f"{self.name} {how}", self.log_tail()]))


class RunningOrchestrators:
    """The orchestrators of one fleet, as a supervisor sees them."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], directory: Path, lifeline_: int) -> None:
        self._settings = settings
        self._environment = environment
        self._directory = directory
        self._lifeline = lifeline_
        self._numbers = count(1)
        self.workers: list[WorkerProcess] = []

    def start_worker(self, pool: str = POOL) -> WorkerProcess:
        """Start one more; `wait_until_ready` waits for it."""
        name = f"{pool}{next(self._numbers)}"
        log_path = self._directory / f"{name}.log"
        with log_path.open("wb") as log:
            # -P: a folder called `orchestrator` beside the user must not be taken for ours. Quiet: its last words are
            # shown when it has died.
            command = [sys.executable, "-P", "-m", "orchestrator.cli", "orchestrator", "--quiet"]
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
        started = OrchestratorProcess(pool, name, process, log_path)
        self.workers.append(started)
        return started

    def wait_until_ready(self) -> None:
        """Return when each of them holds its lease. Raises WorkerNotReady with the last words of one that does not."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        with translating(self._settings), connect(self._settings) as client:
            while True:
                leases = client.zrange(self._settings.keys.orchestrators(), 0, -1)
                ids = [each.decode() for each in leases if isinstance(each, bytes)]
                missing = [each for each in self.workers if not any(is_process(lease, each.pid) for lease in ids)]
                if not missing:
                    return
                for each in missing:
                    if not each.is_running or time.monotonic() > give_up_at:
                        raise WorkerNotReady(each.ending() if not each.is_running else f"{each.name} takes no lease")
                time.sleep(POLL_S)

    def stop(self) -> None:
        """Let them hand over what they are at, for a moment. None is left afterwards."""
        processes, self.workers[:] = list(self.workers), []
        stop_workers(processes, grace_s=GRACE_S)


@contextmanager
def running_orchestrators(
    how_many: int, settings: Settings, environment: Mapping[str, str]
) -> Iterator[RunningOrchestrators]:
    """So many orchestrators from here to the end of the block. Does not wait until they are ready."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as directory, lifeline() as descriptor:
        running = RunningOrchestrators(settings, environment, Path(directory), descriptor)
        try:
            for _ in range(how_many):
                running.start_worker()
            yield running
        finally:
            running.stop()
