"""A worker in TypeScript that cannot serve as it is set up ends with one line that says why."""

from __future__ import annotations

import pytest

from tests.workers_ts.processes import fleet_of, process
from toolfleet.exit_status import ExitStatus

WAIT_S = 20


@pytest.fixture(scope="module")
def fleet():
    with fleet_of() as running:
        yield running


def refused(fleet, program="fleet_tools.ts", **environment):
    """The last line of a worker that does not start."""
    variables = {**fleet.settings.as_environment(), **environment}
    worker = process(program, fleet._directory, variables, lifeline=fleet._lifeline)
    assert worker.process.wait(WAIT_S) == ExitStatus.CONFIGURATION, worker.log_tail()
    return worker.ending()


def test_X2_another_secret_or_no_schema_ends_a_worker_with_one_line(fleet):
    assert "another TOOLFLEET_SECRET" in refused(fleet, TOOLFLEET_SECRET="0" * 32)
    assert "TOOLFLEET_SECRET must have at least" in refused(fleet, TOOLFLEET_SECRET="short")
    assert "tool odd: not a JSON Schema" in refused(fleet, "no_schema.ts")
    assert "live workers serve another tool as echo" in refused(fleet, "rival.ts")
