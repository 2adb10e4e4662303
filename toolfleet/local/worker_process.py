"""One worker process as its starter sees it: started, asked to stop, killed, and what it said last.

Knows the command of a worker and nothing of fleets, servers or tools.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from toolfleet.errors import WorkerMisconfigured, WorkerNotReady
from toolfleet.exit_status import ExitStatus

LOG_TAIL_LINES: Final = 8
LOG_TAIL_BYTES: Final = 16_384

MAX_LOG_BYTES: Final = 16 * 1024 * 1024
"""What a process logs lies in a file that may become so large, for as long as the process lives."""

KEPT_LOG_BYTES: Final = 1024 * 1024

LEASE_ENDS_WITHIN_S: Final = 2.0
"""What giving back takes while the server is there, and more."""

CLEAR_LINE: Final = "toolfleet worker: "
"""How a worker begins the one line that says why it cannot serve."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker's pool, the name it announces, its process, and where it logs."""

    pool: str
    name: str
    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        """The main process; prefork's children are its own."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the main process has not ended."""
        return self.process.poll() is None

    def ending(self) -> str:
        """Return how the process ended and what it said last: in one line if the worker itself knew the reason."""
        code = self.process.poll()
        last_line = self.log_tail().rpartition("\n")[2]
        if last_line.startswith(CLEAR_LINE):
            return last_line.removeprefix(CLEAR_LINE)
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return "\n".join(filter(None, [f"worker {self.name} {how}", self.log_tail()]))

    def not_ready(self) -> WorkerNotReady:
        """Return the error that says why this process, which has ended, does not serve."""
        wrong_setting = self.process.poll() == ExitStatus.CONFIGURATION
        return (WorkerMisconfigured if wrong_setting else WorkerNotReady)(self.ending())

    @property
    def refused(self) -> bool:
        """Whether the process has ended by itself because it cannot serve, and said why."""
        return not self.is_running and self.log_tail().rpartition("\n")[2].startswith(CLEAR_LINE)

    def log_tail(self) -> str:
        """Return the last lines that the worker logged."""
        lines = end_of(self.log_path, LOG_TAIL_BYTES).decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def bound_log(self) -> None:
        """Drop the older part of a log that has become large; a line that is written at this moment may be lost."""
        if self.log_path.stat().st_size > MAX_LOG_BYTES:
            kept = end_of(self.log_path, KEPT_LOG_BYTES)
            os.truncate(self.log_path, 0)
            # The process appends, so what it writes meanwhile comes before or after, never over it.
            with self.log_path.open("ab") as log:
                log.write(b"[the older part was dropped]\n" + kept)

    def ask_to_stop(self) -> None:
        """Running calls may end first; what was fetched and not begun is handed back."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, and the pool's processes. The lease keeper may first give back what the worker held."""
        family = self._family()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        _, left = psutil.wait_procs(family, LEASE_ENDS_WITHIN_S)
        for process in left:
            process.kill()

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []


def start_worker_process(
    pool: str,
    name: str,
    log_path: Path,
    *,
    modules: Sequence[str],
    options: Sequence[str],
    environment: Mapping[str, str],
    lifeline: int,
) -> WorkerProcess:
    """Start a worker, which stops when the other end of `lifeline` is closed. Does not wait for it."""
    command = [
        # -P: a folder called `workers` beside the user must not be taken for ours.
        *(sys.executable, "-P", "-m", "toolfleet.workers", "--pool", pool, "--name", name, "--lifeline", str(lifeline)),
        *(word for module in modules for word in ("--import", module)),
        *options,
    ]
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  # our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            pass_fds=[lifeline],
            # Ctrl-C is for the one who owns the fleet; it stops the workers in order.
            start_new_session=True,
        )
    return WorkerProcess(pool, name, process, log_path)


def end_of(path: Path, max_bytes: int) -> bytes:
    """Return the last `max_bytes` of a file, or all of a shorter one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - max_bytes))
        return file.read(max_bytes)


def stop_workers(workers: Sequence[WorkerProcess], *, grace_s: float) -> None:
    """Stop all at the same time; those that still run after `grace_s` are killed, and all if this is interrupted."""
    give_up = time.monotonic() + grace_s
    # Not those that ended long ago: their pid may be a stranger's by now.
    running = [worker for worker in workers if worker.is_running]
    try:
        for worker in running:
            worker.ask_to_stop()
        for worker in running:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, give_up - time.monotonic()))
    finally:
        for worker in running:
            worker.kill()
