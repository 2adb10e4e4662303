"""What traces cost where nobody wants them: nothing is imported, nothing is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from toolfleet.local.fleet import LocalFleet

HERE = Path(__file__).parent


async def test_T7_without_an_sdk_nobody_of_ours_so_much_as_looks_for_opentelemetry(model, tmp_path):
    who_looked = tmp_path / "who"
    who_looked.touch()
    path = {"PYTHONPATH": f"{HERE / 'without_opentelemetry'}:{HERE}", "WHO_LOOKED": str(who_looked)}
    said = await asyncio.to_thread(talk, path, model.base_url)
    assert said == {"state": "done", "there": ["[]", "[]"], "here": [], "trace": None}
    # redis-py tries to import it, as our processes and their pools of processes do not.
    assert {Path(each).parts[-3] for each in who_looked.read_text().split()} == {"redis"}


async def test_T7_without_a_provider_it_is_loaded_by_nobody_of_ours(model):
    said = await asyncio.to_thread(talk, {"PYTHONPATH": str(HERE)}, model.base_url)
    assert said["state"] == "done"
    assert said["trace"] is None
    everywhere = [*said["here"], *said["there"]]
    assert [name for name in everywhere if "toolfleet.tracing.spans" in name or "sdk.trace" in name] == []


def talk(path, base_url):
    """What an orchestrator says of itself and of its workers, none of which has a provider."""
    with LocalFleet(["untraced_tools"], pools={"io": 1, "cpu": 1}, environment=path) as fleet:
        asked = [sys.executable, str(HERE / "untraced_orchestrator.py"), base_url]
        environment = {**os.environ, **fleet.settings.as_environment(), **path}
        return json.loads(subprocess.run(asked, env=environment, stdout=subprocess.PIPE, check=True).stdout)


async def test_T7_of_a_trace_that_is_not_sampled_nothing_is_recorded_and_its_tools_know(traced, collector):
    with traced(OTEL_TRACES_SAMPLER="parentbased_always_off") as asker:
        done = await asyncio.to_thread(
            asker.ask, "run", question='call carried {} call own_span {"name": "unsampled"}', tenant="acme"
        )
        assert "carried: acme False" in done["answer"]
        assert await asyncio.to_thread(asker.ask, "execute", calls=3) == ["3"] * 3
    with traced() as asker:
        await asyncio.to_thread(asker.ask, "run", question='call own_span {"name": "sampled"}')
        spans = await asyncio.to_thread(
            collector.until, lambda spans: [s for s in spans if s.name == "sampled"] and spans
        )
    assert [span for span in spans if span.name == "unsampled"] == []
    assert [span for span in spans if span.attributes.get("toolfleet.run_id") == done["id"]] == []
