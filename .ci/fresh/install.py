"""The wheel, environments made from it by the image's own install step, and what the image itself is made of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from account import Account
from pythons import Python

COPIED = re.compile(r"^COPY (?!--from)(.+) (\S+)$", re.MULTILINE)
INSTALLED = re.compile(r"(deploy/install) (\S+) \. --locked$", re.MULTILINE)

ENDS_WITHIN_S = 600


@dataclass(frozen=True)
class Wheel:
    """The built package, and the step that installs it."""

    path: Path
    step: Path

    def installed(self, venv: Path, python: Python, account: Account, extra: str = "") -> Path:
        """The `bin` of a new environment with nothing but this and, perhaps, one extra."""
        what = f"{self.path}[{extra}]" if extra else str(self.path)
        done([self.step, venv, what, python.path], environment=account.environment)
        return venv / "bin"

    def with_extra(self, bare: Path, venv: Path, account: Account, extra: str, **environment: str) -> Path:
        """The `bin` of a copy of `bare`, an environment with the wheel alone, to which one extra was added."""
        binaries = copied(bare, venv)
        pip = [binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done([*pip, f"{self.path}[{extra}]"], environment={**account.environment, **environment})
        return binaries


def copied(environment: Path, venv: Path) -> Path:
    """The `bin` of a copy of an environment. Only its `python` is of use: commands that were copied run in the old one.

    Takes a second where another installation takes half a minute.
    """
    shutil.copytree(environment, venv, symlinks=True)
    return venv / "bin"


def build_wheel(checkout: Path, folder: Path, python: Python) -> Wheel:
    """The wheel, built from the checkout as pip builds it."""
    done([python.path, "-m", "venv", folder / "build"])
    pip = [folder / "build" / "bin" / "python", "-m", "pip"]
    done([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", checkout])
    [wheel] = (folder / "dist").glob("toolfleet-*.whl")
    return Wheel(wheel, checkout / "deploy" / "install")


def image_installed(checkout: Path, folder: Path, python: Python, account: Account) -> Path:
    """The `bin` of an environment made of what the Dockerfile copies, installed as it says."""
    dockerfile = (checkout / "deploy" / "Dockerfile").read_text()
    for sources, target in COPIED.findall(dockerfile):
        for source in sources.split():
            name = Path(source).name if target.endswith("/") else ""
            _copy(checkout / source, folder / "build" / target / name)
    [(step, _)] = INSTALLED.findall(dockerfile)
    command = [f"./{step}", folder / "venv", ".", "--locked", python.path]
    done(command, environment=account.environment, cwd=folder / "build")
    return folder / "venv" / "bin"


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def done(command: Sequence[object], *, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a command printed. Raises AssertionError with all of it if it failed."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(word) for word in command]
    ended = subprocess.run(
        words,
        env={**ours, **(environment or {})},
        cwd=cwd or "/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    if ended.returncode:
        raise AssertionError(f"{' '.join(words)} ended with status {ended.returncode}:\n{ended.stdout}")
    return ended.stdout
