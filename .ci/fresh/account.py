"""Who runs the commands: an ordinary user with a read-only home, if we are root; otherwise whoever we are."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from pythons import Python

UID = 10001
"""The image's user. No entry in /etc/passwd is needed, and none is made, as where a cluster chooses the number."""

NOT_COPIED = ("test", "tests", "site-packages", "__pycache__", "include", "share", "*.a")


@dataclass(frozen=True)
class Account:
    """A user id, or None for the current user."""

    uid: int | None
    libraries: Path | None = None

    def __str__(self) -> str:
        if self.uid is None:
            return "as the current user: an ordinary one with a read-only home could not be had"
        return f"as user {self.uid}, who has a read-only home"

    @property
    def popen(self) -> dict[str, object]:
        """What makes `subprocess` run something as this user."""
        return {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}

    @property
    def environment(self) -> dict[str, str]:
        """What a copied interpreter needs to find its library."""
        return {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}

    def give(self, folder: Path) -> Path:
        """The folder, made if need be, in which this user may write."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.uid is not None:
            os.chown(folder, self.uid, self.uid)
        return folder

    def can_run(self, python: Python) -> bool:
        """Whether this user can start the interpreter at all: it may lie below root's home."""
        command = [python.path, "-Ic", "import ssl, venv"]
        environment = {**os.environ, **self.environment}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd="/", **self.popen)
        except OSError:
            return False
        return done.returncode == 0


def reachable(python: Python, folder: Path) -> tuple[Python, Account]:
    """The interpreter, copied if an ordinary user could not reach it, and who can run it."""
    if os.getuid() != 0:
        return python, Account(None)
    ordinary = Account(UID)
    if ordinary.can_run(python):
        return python, ordinary
    prefix = folder / f"python{python.version}"
    shutil.copytree(python.prefix, prefix, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    copy = Python(python.version, prefix / "bin" / f"python{python.version}", prefix)
    ordinary = replace(ordinary, libraries=prefix / "lib")
    return (copy, ordinary) if ordinary.can_run(copy) else (python, Account(None))
