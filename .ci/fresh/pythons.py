"""The Pythons of this machine that the package says it supports: on PATH, and pyenv's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = ("3.13", "3.12", "3.11")

ASK = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"


@dataclass(frozen=True)
class Python:
    """An interpreter that can make environments: `version` as 3.13, and the folder it was installed into."""

    version: str
    path: Path
    prefix: Path


def pythons_here() -> list[Python]:
    """One for each supported version, the newest first."""
    found: dict[str, Python] = {}
    for path in _candidates():
        python = _asked(path)
        if python and python.version in SUPPORTED:
            found.setdefault(python.version, python)
    return [found[version] for version in SUPPORTED if version in found]


def _candidates() -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for version in SUPPORTED:
        yield from sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
    for name in (*(f"python{version}" for version in SUPPORTED), "python3"):
        # Not pyenv's shims, which say no for a version that is not the folder's.
        yield from (Path(path) for folder in os.get_exec_path() if (path := shutil.which(name, path=folder)))


def _asked(path: Path) -> Python | None:
    answer = subprocess.run([path, "-Ic", ASK], capture_output=True, text=True, check=False)
    if answer.returncode:
        return None
    version, prefix = answer.stdout.strip().split(" ", 1)
    return Python(version, path, Path(prefix))
