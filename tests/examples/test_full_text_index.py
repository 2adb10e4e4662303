"""The example of the documentation index, on real workers, one of which is killed in the middle."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conversations import rehearsed

from examples.full_text_index.docstrings import documented, modules
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.run.updates import CallStarted, RunEnded

ROOT = Path(__file__).parents[2]

# A small one for the first checkpoint, then more than can be done before the worker is dead.
MODULES = ["bisect", "email", "asyncio", "xml", "unittest", "tkinter", "multiprocessing", "tempfile"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    here = {"PYTHONPATH": str(ROOT), "DOCS_INDEX": str(tmp_path / "docs.sqlite3")}
    pools = {"cpu": 1, "long": 1}
    with LocalFleet(
        ["examples.full_text_index.tools"], pools=pools, environment=here, lease_s=3, heartbeat_s=0.5
    ) as running:
        yield running


async def test_the_index_is_gone_on_with_from_the_checkpoint_when_its_worker_is_killed(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    program = (
        f'call search_docs {{"query": "x"}} then call build_index {json.dumps({"modules": MODULES})} then fetch '
        'then call search_docs {"query": "create temporary directory", "limit": 3} '
        'and call search_docs {"query": "AND"}'
    )
    murders = []
    async with rehearsed(fleet.settings) as orchestrator:
        async for event in orchestrator.stream(program, slow="handle"):
            if isinstance(event, CallStarted) and event.tool == "build_index":
                murders.append(asyncio.create_task(_replace_worker_once_it_has_kept(fleet, event.call_id)))
            if isinstance(event, RunEnded):
                run = event.run
    await asyncio.gather(*murders)

    results = {call.tool: call.result for call in run.calls}
    answers = [message.content for message in run.messages if message.role == "tool"]
    assert "there is no index yet" in answers[0]
    built = json.loads(results["task_result"].content)["result"]
    assert len(murders) == 1
    assert 1 <= built["continued_after_modules"] < len(MODULES)
    hits = json.loads(answers[-2])
    assert "tempfile.TemporaryDirectory" in [hit["name"] for hit in hits]
    assert "cannot be read" in answers[-1]

    # Everything once, in the order of the modules, as if nothing had happened.
    expected = [(entry.name, entry.text) for module in MODULES for entry in documented(module)]
    with closing(sqlite3.connect(tmp_path / "docs.sqlite3")) as connection:
        assert connection.execute("SELECT name, text FROM docs ORDER BY step, rowid").fetchall() == expected
    assert built["documentation_strings"] == len(expected) > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["docs.sqlite3"]


def test_the_standard_library_is_all_there_and_its_tests_are_not() -> None:
    assert {"json", "asyncio", "tempfile"} <= set(modules())
    assert "test" not in modules()
    assert "json.JSONDecoder.decode" not in {entry.name for entry in documented("json")}
    assert ("json.decoder.JSONDecoder.decode", "method") in {(entry.name, entry.kind) for entry in documented("json")}


async def _replace_worker_once_it_has_kept(fleet: LocalFleet, call_id: str) -> None:
    """Wait for the call's first checkpoint, kill -9 the worker, start another."""
    client = connect_async(fleet.settings)
    async with asyncio.timeout(30):
        while not await client.exists(fleet.settings.keys.checkpoint(call_id)):  # Redis tells nobody
            await asyncio.sleep(0.005)
    await client.aclose()
    [worker] = [worker for worker in fleet.workers if worker.pool == "long"]
    await asyncio.to_thread(worker.kill)
    fleet.workers.remove(worker)
    fleet.start_worker("long")
