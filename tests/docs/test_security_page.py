"""SECURITY.md names the tests that try each attack: each of them is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
WRITTEN = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


def test_every_test_that_is_named_is_written():
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 40
    assert named - WRITTEN == set()


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`((?:tests|deploy|docs)/[\w./]+)`", TEXT))
    assert len(named) > 10
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_attack_names_a_test():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count("|") == 4]
    attacks = [line for line in rows if not line.startswith(("| attack", "| who"))]
    with_words = [line for line in attacks if "test" in line.split("|")[3] or "make faults" in line.split("|")[3]]
    trusted = TEXT.split("## Redis, without the secret")[0].splitlines()
    assert [line for line in attacks if line not in with_words and line not in trusted] == []
