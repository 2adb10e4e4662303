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

COMPILED = ("--compile-bytecode",)
"""For an ordinary user, who cannot write down what each of his commands would compile anew."""

ANEW = ("--reinstall-package", "toolfleet")

TOLD = re.compile(r"^[\w:]+\.(index-url|cert)='(.*)'$", re.MULTILINE)

VARIABLES = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}


@dataclass(frozen=True)
class Wheel:
    """The built package, the step that installs it by pip, and uv, which takes a tenth of pip's time.

    The newest Python and the image have what pip installs; the other environments are more of the same.
    """

    path: Path
    step: Path
    uv: Path
    told: Mapping[str, str]
    """What pip was told of its index, for uv, which does not read that."""

    def installed(self, venv: Path, python: Python, account: Account, extras: str = "") -> Path:
        """The `bin` of a new environment with nothing but this and, perhaps, extras, as everybody installs it."""
        done([self.step, venv, self._with(extras), python.path], environment=account.environment)
        return venv / "bin"

    def installed_by_uv(
        self, venv: Path, python: Python, account: Account, extras: str = "", *, more: Sequence[str] = ()
    ) -> Path:
        """The same in less time, with more words for uv."""
        done([self.uv, "venv", "--quiet", "--python", python.path, venv], environment=account.environment)
        self._add(venv, account, self._with(extras), *more)
        return venv / "bin"

    def with_extras(self, bare: Path, venv: Path, account: Account, extras: str, *, more: Sequence[str] = ()) -> Path:
        """The `bin` of a copy of `bare`, an environment with the wheel alone, to which these extras were added.

        Only its `python` is of use: commands that were copied run in the old one, unless `more` is `ANEW`.
        """
        shutil.copytree(bare, venv, symlinks=True)
        self._add(venv, account, self._with(extras), *more)
        return venv / "bin"

    def _add(self, venv: Path, account: Account, *words: str) -> None:
        pip = [self.uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
        done([*pip, *words], environment={**account.environment, **self.told})

    def _with(self, extras: str) -> str:
        return f"{self.path}[{extras}]" if extras else str(self.path)


def build_wheel(checkout: Path, folder: Path, python: Python) -> Wheel:
    """The wheel, built from the checkout as pip builds it."""
    done([python.path, "-m", "venv", folder / "build"])
    binaries = folder / "build" / "bin"
    pip = [binaries / "python", "-m", "pip", "--disable-pip-version-check"]
    done([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", checkout])
    done([*pip, "install", "--quiet", "uv"])
    [wheel] = (folder / "dist").glob("toolfleet-*.whl")
    return Wheel(wheel, checkout / "deploy" / "install", binaries / "uv", told(done([*pip, "config", "list"])))


def told(config: str) -> dict[str, str]:
    """What `pip config list` says of the index and its certificates, as the variables that uv reads."""
    return {VARIABLES[name]: value for name, value in TOLD.findall(config)}


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
