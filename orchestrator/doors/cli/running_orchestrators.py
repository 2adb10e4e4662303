"""Orchestrators as child processes of `toolfleet up`: started, waited for, stopped before the workers are.

Knows the command of an orchestrator; who is started again and how soon, the supervisor decides.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolfleet.connections import connect
from toolfleet.errors import WorkerNotReady
from toolfleet.local.lifeline import lifeline
from toolfleet.orchestrator.doors.cli.child_commands import ChildCommands
from toolfleet.settings import Settings
from toolfleet.skipped import text_of

POOL: Final = "orchestrator"

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

GRACE_S: Final = 8.0
"""Handing over takes 5 s at most."""


class RunningOrchestrators(ChildCommands):
    """The orchestrators of one fleet."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], directory: Path, lifeline_: int) -> None:
        super().__init__(
            ["orchestrator", "--quiet"],  # its last words are shown when it has died
            pool=POOL,
            settings=settings,
            environment=environment,
            directory=directory,
            lifeline=lifeline_,
            grace_s=GRACE_S,
        )

    def wait_until_ready(self) -> None:
        """Wait until each of them holds its lease. Raises WorkerNotReady with the last words of one that does not."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        with connect(self._settings) as client:
            while True:
                leases = client.zrange(self._settings.keys.orchestrators(), 0, -1)
                ids = [text_of(each) for each in leases if isinstance(each, bytes)]
                missing = [each for each in self.workers if not any(_is_process(lease, each.pid) for lease in ids)]
                if not missing:
                    return
                for each in missing:
                    if not each.is_running or time.monotonic() > give_up_at:
                        raise WorkerNotReady(each.ending() if not each.is_running else f"{each.name} takes no lease")
                time.sleep(POLL_S)


@contextmanager
def running_orchestrators(
    how_many: int, settings: Settings, environment: Mapping[str, str]
) -> Iterator[RunningOrchestrators]:
    """Run so many orchestrators to the end of the block. Does not wait until they are ready."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as directory, lifeline() as descriptor:
        running = RunningOrchestrators(settings, environment, Path(directory), descriptor)
        try:
            for _ in range(how_many):
                running.start_worker()
            yield running
        finally:
            running.stop()


def _is_process(orchestrator_id: str, pid: int) -> bool:
    """Return whether the orchestrator is this process of this machine."""
    return orchestrator_id.startswith(f"{os.uname().nodename}-{pid}-")
