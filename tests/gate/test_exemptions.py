"""Each exemption from a rule says why on its line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

UNREASONED = re.compile(r"#\s*(?:noqa(?:: [A-Z0-9, ]+)?|type: ignore(?:\[[a-z, -]+\])?)\s*$")


def python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.pyi"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_exemption_has_its_reason_on_its_line() -> None:
    files = python_files()
    assert len(files) > 300
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNREASONED.search(line)
    ]
    assert bare == []
