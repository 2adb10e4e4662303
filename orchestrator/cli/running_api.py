"""The HTTP API as a child process of `toolfleet up`: started, waited for, kept alive, stopped before the workers are.

Knows the command; what is served is `toolfleet serve`'s matter.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from orchestrator.cli.running_orchestrators import OrchestratorProcess
from toolfleet.errors import PortInUse, WorkerNotReady
from toolfleet.lifeline import lifeline
from toolfleet.settings import Settings
from toolfleet.worker_process import WorkerProcess, stop_workers

POOL: Final = "api"
HOST: Final = "127.0.0.1"

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

GRACE_S: Final = 12.0
"""Requests may end for five seconds, and handing over its runs takes five."""


class RunningApi:
    """The API of one fleet, as a supervisor sees it."""

    def __init__(
        self, port: int, settings: Settings, environment: Mapping[str, str], directory: Path, lifeline_: int
    ) -> None:
        self.url = f"http://{HOST}:{port}"
        self._port = port
        self._settings = settings
        self._environment = environment
        self._directory = directory
        self._lifeline = lifeline_
        self._numbers = count(1)
        self.workers: list[WorkerProcess] = []

    def start_worker(self, pool: str = POOL) -> WorkerProcess:
        """Start it; `wait_until_it_listens` waits for it."""
        name = f"{pool}{next(self._numbers)}"
        log_path = self._directory / f"{name}.log"
        with log_path.open("wb") as log:
            # -P: a folder called `orchestrator` beside the user must not be taken for ours.
            command = [sys.executable, "-P", "-m", "orchestrator.cli", "serve", "--port", str(self._port)]
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

    def wait_until_it_listens(self) -> None:
        """Return when it can be asked. Raises WorkerNotReady with its last words."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not self._listens():
            [api] = self.workers
            if not api.is_running or time.monotonic() > give_up_at:
                raise WorkerNotReady(f"the API did not start:\n{api.log_tail()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop it; what it works on is handed over."""
        workers, self.workers[:] = list(self.workers), []
        stop_workers(workers, grace_s=GRACE_S)

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def running_api(port: int, settings: Settings, environment: Mapping[str, str]) -> Iterator[RunningApi | None]:
    """The API on a loopback port, 0 for a free one; None where its packages are not installed.

    Raises PortInUse.
    """
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as directory, lifeline() as lifeline_:
        api = RunningApi(_free(port), settings, environment, Path(directory), lifeline_)
        api.start_worker()
        try:
            yield api
        finally:
            api.stop()


def _free(port: int) -> int:
    """The port, if nobody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortInUse(
                f"the API cannot listen on {HOST}:{port} ({error.strerror}); choose another --api-port, or --no-api"
            ) from None
        bound: int = probe.getsockname()[1]
        return bound
