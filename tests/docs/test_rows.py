"""docs/behaviours.md and the tests that are named after its rows: neither has what the other has not."""

import re
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "behaviours.md"
TESTS = Path(__file__).parents[1]

ROW = re.compile(r"^### (\S+)$")
HELD_BY = re.compile(r"^- \[(\w+)\]\((\S+)\)$")
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
ID = re.compile(r"test_([A-Z]\d+)_")


def rows():
    """The lines of each row of the page, by its id, in the page's order."""
    found = []
    for line in PAGE.read_text().splitlines():
        if row := ROW.match(line):
            found.append((row[1], []))
        elif line.startswith("#"):
            assert not found or line.startswith("## "), f"{line!r} is neither a section nor a row"
        elif found:
            found[-1][1].append(line)
    return found


def test_every_row_says_what_is_given_and_what_then_happens():
    assert len(rows()) > 50
    for row, lines in rows():
        said = [line for line in lines if line.startswith(("**Given:** ", "**Then:** "))]
        assert [line.split()[0] for line in said] == ["**Given:**", "**Then:**"], row


def test_every_row_stands_once_and_none_is_left_out():
    sections = defaultdict(list)
    for row, _ in rows():
        sections[row[0]].append(row)
    for section, ids in sections.items():
        assert ids == [f"{section}{number}" for number in range(1, int(ids[-1][1:]) + 1)]


def test_every_row_names_tests_that_are_there_and_carry_its_id():
    for row, lines in rows():
        named = [HELD_BY.match(line) for line in lines if line.startswith("- ")]
        assert named, f"{row} names no test"
        for link in named:
            assert link, f"{row} has an entry that is no link to a test"
            name, path = link.groups()
            assert ID.match(name), f"{row} names {name}, which carries no id"
            assert ID.match(name)[1] == row
            assert name in TEST.findall((PAGE.parent / path).read_text()), f"{path} has no {name}"


def test_every_test_that_carries_an_id_has_its_row():
    carried = {
        row[1]
        for path in TESTS.rglob("test_*.py")
        for name in TEST.findall(path.read_text())
        if (row := ID.match(name))
    }
    assert carried == {row for row, _ in rows()}
