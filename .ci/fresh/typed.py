"""What a user's type checker says about a user's code, with the installed wheel beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from account import Account
from install import copied, done

CODE = Path(__file__).with_name("users_code.py")

CHECKERS = ("mypy", "basedpyright")
"""basedpyright is Pyright with its Node on PyPI; Pyright's own package loads both from elsewhere."""


def check_types(bare: Path, folder: Path, account: Account) -> None:
    """Both checkers, as strict as they can be, find nothing but what is wrong on purpose."""
    folder.mkdir()
    binaries = copied(bare, folder / "venv")
    done([binaries / "python", "-m", "pip", "install", "--quiet", *CHECKERS], environment=account.environment)
    shutil.copy(CODE, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    for command in (
        [binaries / "python", "-m", "mypy", "--strict", "--cache-dir", folder / "cache", CODE.name],
        [binaries / "basedpyright", "--pythonpath", binaries / "python", "--warnings", CODE.name],
    ):
        done(command, environment=account.environment, cwd=folder)
