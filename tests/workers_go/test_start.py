"""A worker in Go that cannot serve as it is set up ends with one line that says why."""

from __future__ import annotations

import pytest

from tests.workers_go.processes import fleet_of, start
from toolfleet.exit_status import ExitStatus

WAIT_S = 20


@pytest.fixture(scope="module")
def fleet():
    with fleet_of() as running:
        yield running


def refused(fleet, **environment):
    """The last line of a worker that does not start."""
    worker = start(fleet, **environment)
    fleet.workers.remove(worker)
    assert worker.process.wait(WAIT_S) == ExitStatus.CONFIGURATION, worker.log_tail()
    return worker.ending()


def test_X2_a_go_worker_that_cannot_begin_says_why(fleet):
    assert "another TOOLFLEET_SECRET" in refused(fleet, TOOLFLEET_SECRET="0" * 32)
    assert "TOOLFLEET_SECRET must have at least" in refused(fleet, TOOLFLEET_SECRET="short")
    assert "TOOLFLEET_LEASE_S is no number" in refused(fleet, TOOLFLEET_LEASE_S="soon")
    assert "tool odd: not a JSON Schema" in refused(fleet, ODD_SCHEMA='{"type": "nonsense"}')
    assert "live workers serve another tool as echo" in refused(fleet, RIVAL="elsewhere")
