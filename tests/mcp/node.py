"""Programs of Node in a folder of the test's, where they find the packages that `npm/` names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.clients.environments import MCP_LISTS, NODE, mcp_packages


def with_packages(folder: Path) -> Path:
    """The folder, with the packages in it and the programs that are beside their list."""
    (folder / "node_modules").symlink_to(mcp_packages())
    for source in MCP_LISTS.glob("*.mjs"):
        (folder / source.name).write_text(source.read_text())
    return folder


def started(folder: Path, script: str | Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """A script under Node, in this folder. Whoever starts it waits for it."""
    return subprocess.Popen(
        [NODE, script, *arguments],
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str], *, within_s: float) -> str:
    """What it has written once it has ended; it is killed when it takes longer."""
    try:
        return process.communicate(timeout=within_s)[0]
    finally:
        process.kill()
        process.wait()
