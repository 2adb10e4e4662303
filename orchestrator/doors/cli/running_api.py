"""The HTTP API as a child process of `toolfleet up`: started, waited for, kept alive, stopped before the workers are.

Knows the command; what is served is `toolfleet serve`'s matter.
"""

from __future__ import annotations

import importlib.util
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolfleet.errors import PortInUse, WorkerNotReady
from toolfleet.local.lifeline import lifeline
from toolfleet.orchestrator.doors.cli.child_commands import ChildCommands
from toolfleet.settings import Settings

HOST: Final = "127.0.0.1"

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

GRACE_S: Final = 12.0
"""Requests may end for five seconds, and handing over its runs takes five."""


class RunningApi(ChildCommands):
    """The API of one fleet."""

    def __init__(
        self, port: int, settings: Settings, environment: Mapping[str, str], directory: Path, lifeline_: int
    ) -> None:
        super().__init__(
            ["serve", "--port", str(port)],
            pool="api",
            settings=settings,
            environment=environment,
            directory=directory,
            lifeline=lifeline_,
            grace_s=GRACE_S,
        )
        self.url = f"http://{HOST}:{port}"
        self._port = port

    def wait_until_it_listens(self) -> None:
        """Return when it can be asked. Raises WorkerNotReady with its last words."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not self._listens():
            [api] = self.workers
            if not api.is_running or time.monotonic() > give_up_at:
                raise WorkerNotReady(f"the API did not start:\n{api.log_tail()}")
            time.sleep(POLL_S)

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
