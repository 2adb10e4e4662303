"""What calls cost by how their tools are run: that each kind is run as it says, and measured; never how fast."""

import psutil
import uvloop

from benchmarks.kinds import KINDS, TOOLS, measured
from toolfleet.local.fleet import LocalFleet


def test_each_kind_of_tool_is_measured_and_nothing_is_left():
    before = psutil.Process().children(recursive=True)
    with LocalFleet([TOOLS], pools={"io": 1, "cpu": 1}) as fleet:
        found = uvloop.run(measured(fleet, 20, 3))

    assert [each.kind for each in found] == list(KINDS)
    for each in found:
        assert min(each.calls_per_s, *each.us_per_call, each.lone_p50_ms) > 0
    assert set(psutil.Process().children(recursive=True)) <= set(before)
