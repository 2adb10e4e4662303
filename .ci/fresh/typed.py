"""What a user's type checker says about a user's code, with the installed wheel beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from account import Account
from install import Wheel, done
from pythons import Python

CODE = Path(__file__).with_name("users_code.py")

CHECKERS = ("mypy", "basedpyright")
"""basedpyright is Pyright with its Node on PyPI; Pyright's own package loads both from elsewhere."""


def check_types(wheel: Wheel, python: Python, account: Account, folder: Path) -> None:
    """Both checkers, as strict as they can be, find nothing but what is wrong on purpose."""
    folder.mkdir()
    binaries = wheel.installed_by_uv(folder / "venv", python, account, more=CHECKERS)
    shutil.copy(CODE, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    for command in (
        [binaries / "python", "-m", "mypy", "--strict", "--cache-dir", folder / "cache", CODE.name],
        [binaries / "basedpyright", "--pythonpath", binaries / "python", "--warnings", CODE.name],
    ):
        done(command, environment=account.environment, cwd=folder)
