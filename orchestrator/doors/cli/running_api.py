"""The HTTP API as a child process of `toolfleet up`: started, waited for, kept alive, stopped before the workers are.

Knows the command; what is served is `toolfleet serve`'s matter.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolfleet.errors import WorkerNotReady
from toolfleet.local.lifeline import lifeline
from toolfleet.orchestrator.doors.cli.child_commands import ChildCommands
from toolfleet.orchestrator.doors.cli.ports import free_port, somebody_listens
from toolfleet.orchestrator.doors.cli.serve import NEEDED
from toolfleet.settings import Settings

HOST: Final = "127.0.0.1"

DEFAULT_PORT: Final = 8642
"""Not that of `toolfleet serve`, which may run beside it, nor one that development servers like."""

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

GRACE_S: Final = 12.0
"""Requests may end for five seconds, and handing over its runs takes five."""


class RunningApi(ChildCommands):
    """The process of one fleet's HTTP API."""

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
        """Wait until it can be asked. Raises WorkerNotReady with its last words."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not self._listens():
            [api] = self.workers
            if not api.is_running or time.monotonic() > give_up_at:
                raise WorkerNotReady(f"the API did not start:\n{api.log_tail()}")
            time.sleep(POLL_S)

    def _listens(self) -> bool:
        return somebody_listens(HOST, self._port)


def api_port_at(port: int) -> int | None:
    """Return the port, or a free one for 0; None where the API's packages are not installed. Raises PortInUse."""
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        return None
    return free_port(HOST, port, who="the API", remedy="choose another --api-port (0 takes a free one), or --no-api")


@contextmanager
def running_api(port: int, settings: Settings, environment: Mapping[str, str]) -> Iterator[RunningApi]:
    """Run the API on this loopback port to the end of the block. Does not wait until it listens."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as directory, lifeline() as lifeline_:
        api = RunningApi(port, settings, environment, Path(directory), lifeline_)
        api.start_worker()
        try:
            yield api
        finally:
            api.stop()
