"""A tool whose queue nobody consumes is named at once with the remedy, and served by a fleet that is asked to."""

from __future__ import annotations

import pytest
from fleets import HERE

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import UnknownTool

REMEDY = "`toolfleet worker --pool translations --import translating_tools`"


async def test_a_tool_that_nobody_serves_is_named_with_the_remedy_until_somebody_does():
    with LocalFleet(["fleet_tools", "translating_tools"], pools={"io": 1, "cpu": 0}, environment=HERE) as fleet:
        [worker] = fleet.workers
        said = worker.log_path.read_text()
        assert "not served by this worker: translate (queue translations); " in said
        assert (
            "`toolfleet worker --pool translations --import fleet_tools --import translating_tools` serves it" in said
        )
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            with pytest.raises(UnknownTool) as refusal:
                await orchestrator.catalog.choose(["translate"])
        assert "translate is on queue translations" in str(refusal.value)
        assert REMEDY in str(refusal.value)
        left = fleet.serve_own_queues()
        assert left.keys() == {"cpu"}
        assert "blocking_echo" in left["cpu"]
        assert sorted(worker.pool for worker in fleet.workers) == ["io", "long", "translations"]
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            assert "translate" in await orchestrator.catalog.choose(["translate"])
