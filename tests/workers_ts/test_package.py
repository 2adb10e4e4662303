"""The package as a user has it: its quickstart does what it says, word for word."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

from tests.clients.environments import NODE, NPM
from tests.workers_ts.built import built
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.orchestrator import Orchestrator

WITHIN_S = 120
BLOCK = re.compile(r"```ts\n(.*?)```", re.DOTALL)


def packed(folder: Path) -> Path:
    """The package as npm would publish it, unpacked where a program finds it beside its dependencies."""
    command = [str(NODE), str(NPM), "pack", "--ignore-scripts", "--pack-destination", str(folder), str(built())]
    subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S, cwd=folder)
    [tarball] = folder.glob("toolfleet-worker-*.tgz")
    modules = folder / "node_modules"
    modules.mkdir()
    for each in (built() / "node_modules").resolve().iterdir():
        (modules / each.name).symlink_to(each)
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    (folder / "package").rename(modules / "toolfleet-worker")
    return modules / "toolfleet-worker"


async def test_X2_the_quickstart_of_the_package_serves_a_tool_as_it_stands(tmp_path):
    package = packed(tmp_path)
    assert {path.name for path in package.iterdir()} == {"LICENSE", "README.md", "dist", "package.json", "wire"}
    assert json.loads((package / "package.json").read_text())["license"] == "MIT"
    [program] = BLOCK.findall((package / "README.md").read_text())
    (tmp_path / "tools.mts").write_text(program)
    with LocalFleet(["fleet_tools"], pools={}) as fleet:
        log_path = tmp_path / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [str(NODE), "tools.mts"],
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **fleet.settings.as_environment()},
                start_new_session=True,
            )
        fleet.workers.append(WorkerProcess("node", "quickstart", process, log_path))
        async with asyncio.timeout(WITHIN_S), Orchestrator(settings=fleet.settings) as orchestrator:
            while not await orchestrator.catalog.offered():  # the worker tells nobody but Redis
                await asyncio.sleep(0.05)
            result = await orchestrator.call("forecast", {"city": "Brno"})
            assert json.loads(result.content) == {"city": "Brno", "days": 1, "weather": "fine"}
            [offered] = (await orchestrator.catalog.offered()).values()
            assert offered.input_schema["required"] == ["city"]
