"""Workers of Go as processes of a fleet, as tests/workers_ts/processes.py has them for TypeScript."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.workers_go.building import built
from tests.workers_ts.processes import fleet_with, started_process
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.testing import MortalFleet

POOL = "go"
TOOLS = Path(__file__).with_name("fleet_tools.go")


def start(fleet: LocalFleet, source: Path = TOOLS, **environment: str) -> WorkerProcess:
    """One more worker, which the fleet stops at its end."""
    variables = {**fleet.settings.as_environment(), **fleet._environment, **environment}
    worker = started_process(POOL, [str(built(source))], fleet._directory, variables, lifeline=fleet._lifeline)
    fleet.workers.append(worker)
    return worker


def fleet_of(workers: int = 1, **settings: Any) -> AbstractContextManager[MortalFleet]:
    """So many workers of Go on a server of their own."""
    return fleet_with(start, workers, **settings)
