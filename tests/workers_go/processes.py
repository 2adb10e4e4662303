"""Workers of Go as processes of a fleet, as tests/workers_ts/processes.py has them for TypeScript."""

from __future__ import annotations

from pathlib import Path

from tests.workers_go.building import built
from tests.workers_ts.processes import started_process
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.worker_process import WorkerProcess

POOL = "go"


def start(fleet: LocalFleet, source: Path) -> WorkerProcess:
    """One more worker, which the fleet stops at its end."""
    variables = {**fleet.settings.as_environment(), **fleet._environment}
    worker = started_process(POOL, [str(built(source))], fleet._directory, variables, lifeline=fleet._lifeline)
    fleet.workers.append(worker)
    return worker
