"""Workers of TypeScript as processes of a fleet: started, waited for and stopped as those in Python."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.clients.environments import NODE
from tests.workers_ts.built import built
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.testing import MortalFleet

POOL = "node"


def start(fleet: LocalFleet, program: str = "fleet_tools.ts", **environment: str) -> WorkerProcess:
    """One more worker, which the fleet stops at its end; `wait_until_ready` waits for it."""
    variables = {**fleet.settings.as_environment(), **fleet._environment, **environment}
    worker = process(program, fleet._directory, variables, lifeline=fleet._lifeline)
    fleet.workers.append(worker)
    return worker


def process(program: str, folder: Path, environment: Mapping[str, str], *, lifeline: int) -> WorkerProcess:
    """A worker that stops when the other end of `lifeline` is closed."""
    return started_process(POOL, [str(NODE), str(built() / "tools" / program)], folder, environment, lifeline=lifeline)


def started_process(
    pool: str, command: list[str], folder: Path, environment: Mapping[str, str], *, lifeline: int
) -> WorkerProcess:
    """A worker of any language, which is told its name."""
    name = f"{pool}-{secrets.token_hex(3)}"
    log_path = folder / f"{name}.log"
    with log_path.open("ab") as log:
        started = subprocess.Popen(
            command,
            stdin=lifeline,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "WORKER_NAME": name, **environment},
            start_new_session=True,
        )
    return WorkerProcess(pool, name, started, log_path)


def fleet_of(workers: int = 1, **settings: Any) -> AbstractContextManager[MortalFleet]:
    """So many workers of TypeScript on a server of their own."""
    return fleet_with(start, workers, **settings)


@contextmanager
def fleet_with(starting: Callable[[LocalFleet], object], workers: int, **settings: Any) -> Iterator[MortalFleet]:
    """So many workers of one language on a server of their own."""
    with MortalFleet(["fleet_tools"], pools={}, **settings) as fleet:
        for _ in range(workers):
            starting(fleet)
        fleet.wait_until_ready()
        yield fleet
