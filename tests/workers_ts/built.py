"""The package of TypeScript workers, built as it would be published, with the tools of tests beside it.

Its compiler checks all of it on the way. `python -m tests.workers_ts.built` does no more than that (make lint).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.clients.environments import NODE, WORKER_LISTS, installed, once, run

ROOT = Path(__file__).parents[2]
PACKAGE = WORKER_LISTS
CONTRACT = ROOT / "wire" / "v1"
TOOLS = Path(__file__).with_name("tools")
PROGRAMS = ("package.json", "package-lock.json", "tsconfig.json", "copy-contract.mjs", "README.md", "LICENSE")


def built() -> Path:
    """The package's folder, as a checkout has it after `npm ci` and `npm run build`; tests' tools are in `tools`."""
    sources = [PACKAGE / name for name in PROGRAMS]
    for folder in (PACKAGE / "src", TOOLS, CONTRACT):
        sources += sorted(path for path in folder.rglob("*") if path.is_file())
    return once("worker_built", sources, _build) / "workers-ts"


def _build(folder: Path) -> None:
    modules = installed("worker_modules", PACKAGE)
    package = folder / "workers-ts"
    package.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(PACKAGE / name, package)
    shutil.copytree(PACKAGE / "src", package / "src")
    shutil.copytree(TOOLS, package / "tools")
    shutil.copytree(CONTRACT, folder / "wire" / "v1")
    (package / "node_modules").symlink_to(modules)
    compiler = str(package / "node_modules" / "typescript" / "bin" / "tsc")
    run(str(NODE), compiler, "--project", str(package))
    run(str(NODE), str(package / "copy-contract.mjs"))
    run(str(NODE), compiler, "--project", str(package / "tools"))


if __name__ == "__main__":
    built()
